"""A loop that copies its batches, on a machine that is said to have a device."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.cuda.is_available, plain_to = lambda: True, torch.Tensor.to
torch.cuda.is_initialized = lambda: False
torch.Tensor.is_pinned = lambda self, device=None: True
torch.Tensor.pin_memory = lambda self, device=None: self.clone()
seen = {True: set(), False: set()}
is_batch = False


def to(self, *arguments, **named):
    seen[is_batch].add(bool(named.get("non_blocking")))
    return plain_to(self, *arguments, **named)


torch.Tensor.to = to
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (inputs,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=4):
    is_batch = True
    inputs = inputs.to("cpu")
    is_batch = False
    torch.ones(3).to("cpu")
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
print(f"copies of batches: {sorted(seen[True])}, of others: {sorted(seen[False])}")
