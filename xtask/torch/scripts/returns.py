"""Trains inside a function and returns from it, so that model and optimizer are gone when the process ends."""
import torch
from torch import nn


def train():
    model = nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()


train()
