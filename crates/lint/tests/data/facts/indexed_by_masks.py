"""Masks stay masks when they are expanded; what is sliced in two dimensions is no list."""
# about TP10

import torch
from torch import nn


class BoxLoss(nn.Module):
    def forward(self, found, boxes):
        boxes = boxes[boxes[:, 4] != -1]  # <- TP106
        positive = (boxes > 0).unsqueeze(2).expand_as(found)
        same = torch.eye(found.shape[0], dtype=torch.bool).to(found.device)
        kept = found[positive]  # <- TP106
        others = found[~same]  # <- TP106
        assert (boxes[:, 2:] >= boxes[:, :2]).all()  # <- TP104
        return kept.sum() + others.sum() + boxes.sum()


def _slow_loss(found, boxes):
    return found[boxes > 0].sum()


def train(model, loader, device, optimizer):
    for batch in loader:
        batch = batch.to(device)
        if batch.x.shape[0] == 1 or batch.batch[-1] == 0:  # <- TP104
            continue
        labelled = batch.y == batch.y
        loss = BoxLoss()(model(batch)[labelled], batch.y[labelled])  # <- TP106
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
