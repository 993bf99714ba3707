# words: end
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x, lengths):
        rows = torch.arange(WORD=lengths.max(), device=x.device)  # <- TP201?
        return x + rows
