"""What a helper hands on is what this call passed, not what another one did."""
# about TP101 TP104

import torch


def default(value, other):
    return value if value is not None else other


def place(x, device):
    if device is not None:
        x = x.to(device)
    return x


def train(model, loader, optimizer, device):
    for x, y in loader:
        loss = model(place(x, device)).mean()
        kept = default(loss, 1)
        limit = default(None, 3)
        loss.backward()
        optimizer.step()
        if limit > 2:
            print("over")
        if kept > limit:  # <- TP104
            print("lost")
        print(float(kept))  # <- TP101
