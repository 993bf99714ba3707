"""Trains beside a deep copy of the model, as averages of weights are kept, and says whether the copy computes with its own."""
import copy

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(8, 16)
average = None
for _ in range(8):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if average is None:
        average = copy.deepcopy(model)
with torch.no_grad():
    for parameter in average.parameters():
        parameter.zero_()
    print("the copy is its own:", bool((average(inputs) == 0).all()) and not bool((model(inputs) == 0).all()), flush=True)
