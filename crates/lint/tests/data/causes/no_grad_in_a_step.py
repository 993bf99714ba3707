"""`no_grad` around a part of a training step: averages of weights, norms, a teacher."""

import torch


@torch.no_grad()
def update_average(average, model, decay):
    for slow, fast in zip(average.parameters(), model.parameters()):
        slow.mul_(decay).add_(fast, alpha=1 - decay)
    drift = (average.head.weight - model.head.weight).norm()
    return drift.item()  # <- TP101


def train(model, average, teacher, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.no_grad():
            target = teacher(x)
            confidence = target.softmax(-1).amax(-1).mean().item()  # <- TP101
            print(confidence)
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        update_average(average, model, 0.999)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            pass


def evaluate(model, loader, device):
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += ((model(x.to(device)) - y.to(device)) ** 2).mean().item()
    return total
