# words: _idx, _index
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        rowWORD = torch.argmax(x)
        if rowWORD > 4:  # <~ TP104?
            return x
        return x * 2
