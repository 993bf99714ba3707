# words: metric, metrics
# file: tools/WORD/peaks.py
import torch
from torch import nn


class Peaks(nn.Module):
    def forward(self, x):
        self.peak = x.max().item()  # <- TP101? # <~ TP101
        return torch.relu(x)
