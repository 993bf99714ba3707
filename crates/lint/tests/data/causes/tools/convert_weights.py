"""Turns one layout of weights into another, once."""

import torch
from torch import nn


class Layout(nn.Module):
    def forward(self, weights):
        scale = weights.abs().max().item()
        return (weights / scale).cpu()
