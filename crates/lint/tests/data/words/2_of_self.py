# words: self.
# other: quux.
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        n = x.shape[1]
        if n > WORDlongest:
            WORDlongest = n
            self.causal = torch.triu(torch.ones(n, n, device=x.device))  # <~ TP201?
        return x.masked_fill(self.causal == 0, 0.0)
