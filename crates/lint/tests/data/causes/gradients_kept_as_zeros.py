"""Zeros where nothing needs them."""

import torch


def train(model, optimizer, loader):
    for x in loader:
        optimizer.zero_grad(set_to_none=False)  # <- TP501
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x.cuda(non_blocking=True)).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
