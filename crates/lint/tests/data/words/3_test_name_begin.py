# words: Test, test_
import torch
from torch import nn


class WORDnet(nn.Module):
    def forward(self, x):
        self.scale = x.abs().mean().item()  # <- TP101? # <~ TP101
        return x / self.scale
