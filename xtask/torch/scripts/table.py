"""Modules and their optimizers in tables, made by a comprehension."""
import torch
from torch import nn

torch.manual_seed(0)
nets = {"maker": nn.Linear(4, 8), "critic": nn.Linear(8, 1)}
optimizers = {name: torch.optim.Adam(net.parameters()) for name, net in nets.items()}
for _ in range(8):
    for name, optimizer in optimizers.items():
        optimizer.zero_grad(set_to_none=False)
        nets["critic"](nets["maker"](torch.randn(4, 4))).mean().backward()
        optimizer.step()
