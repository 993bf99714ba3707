# words: Metric
import torch
from torch import nn


class MeanWORD(nn.Module):
    def forward(self, x):
        self.peak = x.max().item()  # <- TP101? # <~ TP101
        return torch.relu(x)
