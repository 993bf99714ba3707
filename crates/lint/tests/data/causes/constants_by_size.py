"""A row of numbers is one small kernel; a square of them grows with the sequence."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Shape:
    heads: int = 8
    longest: int = 2048


class Fixed(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return x + torch.full((self.shape.longest, self.shape.heads), 0.5, device=x.device)  # <- TP201


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        length = x.size(1)
        positions = torch.arange(length, device=x.device)
        one = torch.tensor([1.0, float(length)], device=x.device)
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)  # <- TP201
        route = self.kept.get(length)
        if route is None:
            route = torch.tril(torch.ones(length, length, device=x.device))
            self.kept[length] = route
        return x + positions[:, None] + mask + one.sum() + route


def shown_mask(scores, allowed, penalty):
    scores[~allowed] -= penalty
    return scores


class Loss(nn.Module):
    def forward(self, scores: torch.Tensor, allowed: torch.Tensor):
        allowed = allowed > 0
        scores[~allowed] -= 2.0  # <- TP106
        return scores[allowed].mean()  # <- TP106


def train(model, loss, optimizer, loader):
    for x, allowed in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(model(x.cuda()), allowed.cuda())
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
