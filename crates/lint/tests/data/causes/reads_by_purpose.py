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
        # Once per pass the mask may be left out for good reason.
        if padding.any():
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return x


class PaddingOfEach(nn.Module):
    def forward(self, inputs, padding):
        weights = []
        for x in inputs:
            if padding.any():  # <- TP104
                x = x.masked_fill(padding.unsqueeze(-1), 0.0)
            weights.append(x.sum() if padding.sum() > x.size(0) else x.mean())  # <- TP104
        return weights


class Samples(nn.Module):
    def forward(self, x, lengths):
        # A module that needs every length has them from its caller, who is not in sight.
        parts = []
        for row, length in zip(x, lengths):
            parts.append(row[: length.item()])
        return torch.cat(parts)


def train(model, loader, optimizer):
    for x, lengths in loader:
        x, lengths = x.cuda(non_blocking=True), lengths.cuda(non_blocking=True)
        # In the loop of steps the lengths were on the host a line before.
        parts = [row[: length.item()] for row, length in zip(x, lengths)]  # <- TP101
        loss = model(torch.cat(parts)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def unused_loss(logits, target):
    loss = nn.functional.cross_entropy(logits, target)
    print(loss.item())
    return loss
