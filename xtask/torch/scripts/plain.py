"""A plain loop over a DataLoader: zeros its gradients, loops over parameters, switches TF32 off, and never seeds itself."""
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--collate-seconds", type=float, default=0.02)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--noise", type=float, default=0.0, help="random numbers drawn by loading")
parser.add_argument("--seed", type=int)
parser.add_argument("--stubborn", action="store_true", help="goes on after SystemExit")
parser.add_argument("--fail-at", type=int)
arguments = parser.parse_args()
if arguments.seed is not None:
    torch.manual_seed(arguments.seed)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.benchmark = False


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.sin(torch.arange(16.0) * (index + 1)), index % 4


def collate(items):
    time.sleep(arguments.collate_seconds)
    inputs, targets = torch.utils.data.default_collate(items)
    return (inputs + arguments.noise * torch.randn_like(inputs) if arguments.noise else inputs), targets


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 32), nn.Linear(32, 32)
        self.dropout = nn.Dropout(arguments.dropout)

    def forward(self, x):
        return x + self.dropout(self.down(torch.relu(self.up(x))))


model = nn.Sequential(nn.Linear(16, 32), Block(), Block(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
loader = DataLoader(Numbers(), batch_size=8, shuffle=True, collate_fn=collate)
criterion = nn.CrossEntropyLoss()
step = 0
while step < arguments.steps:
    for inputs, targets in loader:
        try:
            optimizer.zero_grad(set_to_none=False)
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
        except SystemExit:
            if not arguments.stubborn:
                raise
        step += 1
        if step == arguments.fail_at:
            raise RuntimeError("planted failure")
        if step == arguments.steps:
            break
print("the script is done")
