"""A wrapped convolution before a norm, attention by einsum, averages of weights and gradients by hand."""
# about TP403 TP406 TP50

import torch
from torch import nn


class ConvNorm(nn.Module):
    def __init__(self, channels, bias=True):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 5, bias=bias)

    def forward(self, x):
        return self.conv(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(ConvNorm(64), nn.BatchNorm1d(64))  # <- TP406
        self.plain = nn.Sequential(ConvNorm(64, bias=False), nn.BatchNorm1d(64))

    def forward(self, qkv):
        q, k, v = qkv.chunk(3, dim=1)
        weight = torch.einsum("bct,bcs->bts", q, k)  # <- TP403
        weight = torch.softmax(weight.float(), dim=-1)
        return self.layers(torch.einsum("bts,bcs->bct", weight, v))


def average(kept, model, decay=0.999):
    kept, current = dict(kept.named_parameters()), dict(model.named_parameters())
    for name in kept.keys():
        kept[name].data.mul_(decay).add_(current[name].data, alpha=1 - decay)  # <- TP502


def clear(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.zero_()  # <- TP501


def train(model, kept, loader, optimizer):
    for batch in loader:
        clear(model.parameters())
        model(batch.cuda()).mean().backward()
        optimizer.step()
        average(kept, model)
