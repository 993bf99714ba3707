# words: e, inf, nan, pi
import math
import torch
from torch import nn

class Attention(nn.Module):
    def forward(self, x):
        n = x.size(1)
        bias = torch.full((n, n), math.WORD, device=x.device)  # <- TP201?
        return x + bias
