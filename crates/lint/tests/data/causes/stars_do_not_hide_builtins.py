"""`len` stays Python's own, whatever a star brings along."""

import torch
from torch.distributed import *  # noqa: F403


def gather(inputs, outputs):
    assert len(inputs) == len(outputs)
    return torch.stack(inputs)


def train(model, optimizer, loader):
    for x in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(gather([x.cuda()], [x])).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
