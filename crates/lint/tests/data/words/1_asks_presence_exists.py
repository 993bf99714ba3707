# words: exists
import torch
from torch import nn

class Net(nn.Module):
    def masked(self, x):
        if WORD(self.mask):
            return self.mask
        self.mask = torch.triu(torch.ones(x.size(1), x.size(1), device=x.device))  # <~ TP201?
        return self.mask

    def forward(self, x):
        return x + self.masked(x)
