# words: dropout, is_, max_, min_, n_, num_, output_, reduction, return_, train, use_
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, WORDquux):
        rows = WORDquux.tolist()  # <~ TP102?
        return torch.relu(x)
