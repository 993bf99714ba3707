# words: device, dtype, shape
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        if self.mask.WORD != x.WORD:
            n = x.size(1)
            self.mask = torch.triu(torch.ones(n, n, device=x.device))  # <~ TP201?
        return x + self.mask
