"""Branches: whether one is taken only its reader can say. Some are known to be taken wherever a script trains."""

import torch
from torch import nn


class Permutations(nn.Module):
    def forward(self, sources, target):
        best = None
        for source in sources:
            loss = nn.functional.mse_loss(source, target)
            if best is None or loss > best:  # <- TP104
                best = loss
        return best


class Criterion(nn.Module):
    def __init__(self, use_aux):
        super().__init__()
        self.use_aux = use_aux

    def forward(self, logits, target, weight=None):
        loss = nn.functional.cross_entropy(logits, target)
        logs = {}
        if self.use_aux:
            logs["aux"] = loss.item()
        if weight is not None:
            logs["weighted"] = (loss * weight).mean().item()
        if self.training:
            logs["loss"] = loss.item()  # <- TP101
        if isinstance(loss, torch.Tensor):
            logs["same"] = loss.item()  # <- TP101
        return loss, logs


def train(model, loader, optimizer, rank, extra, clip_value):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(loss.item())  # <- TP101
        if extra:
            print(loss.item())
        if clip_value > 3:
            torch.cuda.empty_cache()


def train_on_what_is_there(model, loader, optimizer):
    for x, y in loader:
        # The branch holds the whole step.
        if len(x) > 1:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item())  # <- TP101
