"""Scripts that cannot be measured: named by the argument."""
import sys

import torch

if sys.argv[1] == "no-optimizer":
    torch.randn(4).sum()
elif sys.argv[1] == "no-step":
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
else:
    weight = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for number in range(8):
        if sys.argv[1] == "no-loss":
            weight.grad = torch.ones(3)
        else:
            (weight * float("nan" if number > 2 else 1)).sum().backward()
        optimizer.step()
