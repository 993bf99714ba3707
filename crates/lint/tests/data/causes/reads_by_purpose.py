"""Modules of a library: no training loop is in sight. What a value is read for decides."""

import torch
from torch import nn


class Criterion(nn.Module):
    def forward(self, logits, target):
        loss = nn.functional.cross_entropy(logits, target)
        right = (logits.argmax(-1) == target).float().mean()
        logs = {"loss": loss.item()}  # <- TP101
        logs["accuracy"] = right.item()  # <- TP101
        return loss, logs


class Ranges(nn.Module):
    def forward(self, x, lengths, boxes):
        # The host goes on with the number: it may have it from elsewhere, which only its caller can see.
        longest = lengths.max().item()
        x = x[:, :longest]
        steps = torch.arange(int(lengths.sum()), device=x.device)
        # Nothing is trained on what is no number.
        if torch.isnan(x).any():
            raise ValueError("no number")
        assert (boxes >= 0).all()
        positive = boxes.gt(0).sum()
        if positive > 0:
            x = x / positive
        return x, steps


class Padding(nn.Module):
    def forward(self, x, padding):
        if padding.any():  # <- TP104
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return x


class Samples(nn.Module):
    def forward(self, x, lengths):
        parts = []
        for row, length in zip(x, lengths):
            parts.append(row[: length.item()])  # <- TP101
        return torch.cat(parts)


def unused_loss(logits, target):
    loss = nn.functional.cross_entropy(logits, target)
    print(loss.item())
    return loss
