"""A host named as the last resort does not make a script one for the host."""

import torch

if torch.accelerator.is_available():
    where = torch.accelerator.current_accelerator()
else:
    where = torch.device("cpu")


def train(model, loader, optimizer, log):
    model.to(where)
    for x, y in loader:
        loss = ((model(x.to(where, non_blocking=True)) - y.to(where, non_blocking=True)) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        log.append(loss.item())  # <- TP101
