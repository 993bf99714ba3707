"""An `elif` is asked only where the tests before it fail, and a sum of what was detached keeps no graph."""

import torch


def train(model, loader, optimizer, kinds, training):
    total = 0.0
    running = torch.zeros((), device="cuda")
    for batch in loader:
        batch = batch.cuda(non_blocking=True)
        for kind in (kinds.cuda(), kinds.flip(0).cuda()):
            if (kind == 0).any():  # <- TP104
                batch[kind == 0] = 0
            elif (kind == 1).any():
                batch[kind == 1] = 1
        for row in range(8):
            if kind[row] > 0:
                batch = batch + row
        loss = model(batch).mean()
        if training:
            loss.backward()
            loss = loss.detach()
        running = running + loss
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()  # <- TP101
    return total, running
