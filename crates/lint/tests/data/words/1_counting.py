# words: arange
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x, lengths):
        longest = lengths.max()
        rows = torch.WORD(longest, device=x.device)  # <- TP201?
        return x + rows
