"""Losses that are detached before they are kept, constants that are written into, and objects that are no tensors."""

import numpy as np
import torch
from torch import nn


def train(model, loader, optimizer, policy_cls, with_backward):
    policy = policy_cls(width=64)
    losses, statistics = [], {}
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        targets = torch.full((x.size(0), x.size(1)), 0.1, device=x.device).scatter_(1, y.view(-1, 1), 0.9)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), targets)
        if with_backward:
            loss.backward()
            loss = loss.detach()
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(f"policy {policy}")
        for name in ("min", "max"):
            statistics[name] = getattr(np, name)(loader.lengths).item()
    return losses, statistics


def train_and_keep(model, loader, optimizer):
    losses = []
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = nn.functional.cross_entropy(model(x), y)
        losses.append(loss)  # <- TP205
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses
