"""A loop whose data set changes while it runs, or whose numbers no seed fixes; reading takes some time."""
import argparse
import os
import random
import time

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--read-seconds", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=100)
arguments = parser.parse_args()
kind = arguments.kind


class Numbers(Dataset):
    def __init__(self):
        self.level = 0
        self.hard = list(range(480))

    def __len__(self):
        return 480

    def __getitem__(self, index):
        index = self.hard[index % len(self.hard)]
        time.sleep(arguments.read_seconds)
        return torch.sin(torch.arange(16.0) * (index + 1)), (index + self.level) % 4


noise = 0.0
if kind == "default-rng":
    noise = float(numpy.random.default_rng().random())
elif kind == "system-random":
    noise = random.SystemRandom().random()
elif kind == "urandom":
    noise = os.urandom(1)[0] / 256
elif kind == "torch-seed":
    torch.seed()
elif kind == "time":
    torch.manual_seed(time.time_ns() % (1 << 40))
data = Numbers()
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for epoch in range(arguments.epochs):
    if kind == "level":
        data.level = epoch
    for step, (inputs, targets) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(inputs + noise), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kind == "middle" and step == 3:
            data.level = 1
        if kind == "mined" and step == 3:
            data.hard = targets.tolist()
