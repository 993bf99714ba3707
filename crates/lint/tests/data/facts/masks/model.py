"""Masks that a plain class makes in a forward pass, and what is drawn in one."""
# about TP2

import functools

import torch
from masks import CausalMask, Schedule
from torch import nn


class Attention(nn.Module):
    def forward(self, x):
        mask = CausalMask(x.size(0), x.size(1), x.device)
        return x.masked_fill(mask.kept, 0.0)


class Diffusion(Schedule):
    def losses(self, model, x, t):
        return super().losses(self.wrapped(model), x, t)

    def wrapped(self, model):
        return model if isinstance(model, Rescaled) else Rescaled(model, [0, 10, 20])


class Rescaled:
    def __init__(self, model, table):
        self.model, self.table = model, table

    def __call__(self, x):
        return self.model(x * torch.tensor(self.table, device=x.device).sum())  # <- TP203


def run(loader, device, optimizer):
    model = Attention().to(device)
    diffusion = Diffusion()
    for x in loader:
        x = x.to(device)
        t = diffusion.sample_steps(x.size(0), device)
        compute = functools.partial(diffusion.losses, model, x, t)
        loss = compute().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
