"""Purposes of loaders, by the first phase that a name says, or by a key."""

import torch
from torch.utils.data import DataLoader


def main(samples, held_out, model, optimizer):
    loaders = {}
    loaders["train"] = DataLoader(samples, batch_size=8, shuffle=True)  # <- TP301 TP302
    loaders["val"] = DataLoader(held_out, batch_size=8)
    cv_loader = DataLoader(held_out, batch_size=8)
    val_train_loader = DataLoader(samples, batch_size=8, shuffle=True)
    for x in loaders["train"]:
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return cv_loader, val_train_loader, loaders["val"]


def pinned(samples, model, optimizer):
    loader = DataLoader(samples, batch_size=8, num_workers=2, pin_memory=True, persistent_workers=True)
    for x, labels in loader:
        x = x.cuda()  # <- TP303
        scores = model(x)
        chosen = scores.max(1)[0] > 0.5
        # Picked rows lie in memory that nobody pinned.
        picked = labels[chosen.cpu()].cuda()  # <- TP102
        loss = (scores - 1).mean() + picked.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
