# words: ctx, epoch, eps, index, kwargs, mode, name, self, step
import torch
from torch import nn


class Net(nn.Module):
    def forward(this, x, WORD):
        rows = WORD.tolist()  # <~ TP102?
        return torch.relu(x)
