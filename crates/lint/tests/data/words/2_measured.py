# words: nelement, numel, size
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.causal = None

    def forward(self, x):
        n = x.shape[1]
        if self.causal.WORD() < n:
            self.causal = torch.triu(torch.ones(n, n, device=x.device))  # <~ TP201?
        return x.masked_fill(self.causal == 0, 0.0)
