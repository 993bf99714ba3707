"""Branches of other phases: validation, decoding, tracing, recovery from exhausted memory."""

import torch
from torch import nn


class Stage:
    TRAIN = 1
    VALID = 2


class Objectives(nn.Module):
    def forward(self, x, stage, incremental_state=None):
        losses = []
        if stage != Stage.TRAIN:
            losses.append(x.mean().item())
        if stage == Stage.VALID:
            losses.append(x.max().item())
        if incremental_state is not None:
            losses.append(x.min().item())
        if torch.compiler.is_compiling():
            losses.append(x.sum().item())
        if stage == Stage.TRAIN:
            losses.append(x.std().item())  # <- TP101
        return x, losses


class BeamSearcher(nn.Module):
    def forward(self, scores):
        best = []
        for row in scores:
            best.append(row.argmax().item())
        return best


class Follower(nn.Module):
    def __init__(self, tracker):
        super().__init__()
        self.tracker = tracker

    def forward(self, x):
        boxes = torch.relu(x)
        return self.tracker.track(boxes)


def train(model, optimizer, loader):
    for x in loader:
        has_oom = False
        try:
            loss = model(x.cuda(), Stage.TRAIN)[0].mean()
            loss.backward()
        except RuntimeError:
            has_oom = True
        if has_oom:
            torch.cuda.empty_cache()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            optimizer.step()
