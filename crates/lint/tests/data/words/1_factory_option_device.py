# words: device
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x, kind):
        n = x.size(1)
        mask = torch.full((n, n), 0.0, WORD=kind)  # <- TP201?
        return x * mask
