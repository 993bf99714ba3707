"""A class that holds its model, a loader of its own class, and an optimizer that another file makes."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runner_optimizer import make_optimizer


class Loader(DataLoader):
    def __init__(self, data):
        super().__init__(
            data,
            batch_size=8,
        )


class Runner:
    def __init__(self):
        layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]
        self.model = nn.Sequential(*layers[:1], nn.Identity(), *layers[1:], nn.Linear(8, 1))

    def train(self):
        optimizer = make_optimizer(self.model.parameters())
        for (inputs,) in Loader(TensorDataset(torch.randn(64, 8))):
            self.model.zero_grad(False)
            self.model(inputs).square().mean().backward()
            optimizer.step()


Runner().train()
