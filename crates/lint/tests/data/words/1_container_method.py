# words: count, get, pop
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        h = torch.relu(x)
        limit = h.WORD("limit")
        return h / float(limit)  # <~ TP101?
