"""The training runs in a process that multiprocessing starts, over a loader whose workers are started afresh."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(rank):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 8))
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (inputs,) in DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context=sys.argv[1]):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=1)
