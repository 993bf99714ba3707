# words: softmax
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.own_WORD = nn.Softmax(-1)

    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)  # <- TP403?
        weights = self.own_WORD(scores)
        return weights @ v
