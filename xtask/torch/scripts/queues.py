"""Processes with queues: the main process trains on batches that others make, or waits for the losses of one that trains."""
import sys

import torch
import torch.multiprocessing as mp
from torch import nn


def make(queue):
    while True:
        queue.put(torch.randn(256, 64).numpy())


def train(batches, losses):
    model = nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1000):
        optimizer.zero_grad()
        loss = model(torch.as_tensor(batches.get())).pow(2).mean()
        loss.backward()
        optimizer.step()
        if losses is not None:
            losses.put(loss.item())


if __name__ == "__main__":
    context = mp.get_context(sys.argv[2])
    batches, losses = context.Queue(4), context.Queue()
    maker = context.Process(target=make, args=(batches,))
    maker.start()
    if sys.argv[1] == "main":
        train(batches, None)
    else:
        learner = context.Process(target=train, args=(batches, losses))
        learner.start()
        for _ in range(1000):
            losses.get()
