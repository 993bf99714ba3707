# words: validate
# other: evaluate
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        self._WORD_inputs(x)
        return x * 2

    def _WORD_inputs(self, x):
        self.least = x.min().item()  # <- TP101
