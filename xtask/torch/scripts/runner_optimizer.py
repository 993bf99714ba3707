"""Makes an optimizer for `runner.py`."""
import torch


def make_optimizer(parameters):
    return torch.optim.SGD(
        parameters, lr=0.1
    )
