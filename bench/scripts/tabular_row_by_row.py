"""A plain loop over a table on the device whose DataLoader stacks single rows. Fixed: a whole batch per index."""
import argparse

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, columns, batch = (2, 64, 16, 32) if arguments.small else (20, 4096, 256, 4096)
steps_per_epoch = 50


class Table(torch.utils.data.Dataset):
    def __init__(self):
        self.features = torch.randn(steps_per_epoch * batch, columns, device=device, dtype=torch.bfloat16)
        self.targets = self.features[:, :8].float().sum(1)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index], self.targets[index]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + nn.functional.relu(self.dense(self.norm(x)))


torch.manual_seed(0)
with torch.device(device):
    model = nn.Sequential(nn.Linear(columns, width), *[Block() for _ in range(layers)], nn.Linear(width, 1))
model = model.to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
table = Table()
if arguments.fixed:
    # The sampler deals out lists of row numbers, and the table gathers each list in one call.
    loader = DataLoader(table, sampler=BatchSampler(RandomSampler(table), batch, drop_last=True), batch_size=None)
else:
    loader = DataLoader(table, batch_size=batch, shuffle=True, drop_last=True)

step = 0
while step < arguments.steps:
    for features, targets in loader:
        loss = nn.functional.mse_loss(model(features).squeeze(1).float(), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == arguments.steps:
            break
print(f"loss {loss.item():.4f}")
