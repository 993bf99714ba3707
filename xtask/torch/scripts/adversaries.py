"""Two optimizers and their losses in turns, as a generator and its critic have them; with --scaler, through a GradScaler."""
import sys

import torch
from torch import nn

torch.manual_seed(0)
maker, critic = nn.Linear(4, 8), nn.Linear(8, 1)
first = torch.optim.Adam(maker.parameters(), lr=1e-3)
second = torch.optim.SGD(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled="--scaler" in sys.argv, init_scale=1024.0)


def train(loss, optimizer):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


for _ in range(8):
    for _ in range(2):
        made = maker(torch.randn(16, 4)).detach()
        train(critic(made).mean() - critic(torch.randn(16, 8)).mean(), second)
    train(-critic(maker(torch.randn(16, 4))).mean(), first)
