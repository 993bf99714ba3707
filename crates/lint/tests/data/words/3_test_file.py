# words: conftest, test, testing, tests, unittest, unittests
# file: WORD/net.py
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        self.scale = x.abs().mean().item()  # <- TP101? # <~ TP101
        return x / self.scale
