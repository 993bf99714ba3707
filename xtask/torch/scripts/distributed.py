"""DistributedDataParallel over gloo, started by torchrun, beside a copy whose gradients are averaged by hand."""
import copy

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
model = DistributedDataParallel(copy.deepcopy(plain))
optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
torch.manual_seed(1 + torch.distributed.get_rank())
for _ in range(8):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    plain.zero_grad()
    plain(inputs).square().mean().backward()
    with torch.no_grad():
        for parameter in plain.parameters():
            torch.distributed.all_reduce(parameter.grad)
            parameter -= 0.125 * (parameter.grad / 2)
    optimizer.step()
storages = {parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()}
print(f"views: {len(storages) == 1}")
torch.distributed.destroy_process_group()
