# An adapter's layer: it is merged into the weight for serving, and trained by `forward`.
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, base, low, high):
        super().__init__()
        self.base, self.low, self.high = base, low, high
        self.merged = False

    def merge(self):
        added = (self.high @ self.low).to("cpu")
        self.base.weight.data += added.to(self.base.weight.device)
        self.merged = True

    def forward(self, x):
        if not self.merged and not self.training:
            self.merge()
        self.seen = torch.linalg.vector_norm(x).item()  # <- TP101
        return self.base(x)
