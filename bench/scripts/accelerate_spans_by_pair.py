"""Accelerate over a time-aware recommender whose spans between visits are taken pair by pair in Python. Fixed: by NumPy."""
import argparse
import random

import numpy
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, items, batch, length = (2, 64, 4, 512, 4, 16) if arguments.small else (12, 1024, 16, 32768, 64, 64)
USERS, LONGEST = 2048, 255


class Visits(torch.utils.data.Dataset):
    """What each user looked at and on which day."""

    def __init__(self):
        draw = random.Random(0)
        self.users = []
        for _ in range(min(USERS, arguments.steps * batch)):
            day, days = 0, []
            for _ in range(length):
                day += int(draw.expovariate(0.3))
                days.append(day)
            self.users.append(([draw.randrange(items) for _ in range(length + 1)], days))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return self.users[index % len(self.users)]


def spans_of(days):
    return [[min(abs(a - b), LONGEST) for b in days] for a in days]


def collate(rows):
    seen = torch.from_numpy(numpy.array([row[0] for row in rows]))
    if arguments.fixed:
        days = numpy.array([row[1] for row in rows])
        spans = torch.from_numpy(numpy.minimum(numpy.abs(days[:, :, None] - days[:, None, :]), LONGEST))
    else:
        spans = torch.tensor([spans_of(row[1]) for row in rows])
    return {"seen": seen, "spans": spans}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, bias):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items, self.places = nn.Embedding(items, width), nn.Embedding(length, width)
        self.spans = nn.Embedding(LONGEST + 1, heads)
        for table in (self.items, self.places, self.spans):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, items, bias=False)
        self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, seen, spans):
        bias = self.spans(spans).permute(0, 3, 1, 2).masked_fill(self.future, float("-inf")).contiguous()
        x = self.items(seen) + self.places.weight
        for block in self.blocks:
            x = block(x, bias)
        return self.head(self.norm(x))


torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", cpu=not has_gpu)
with torch.device(accelerator.device):
    model = Recommender()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
loader = torch.utils.data.DataLoader(Visits(), batch_size=batch, collate_fn=collate, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, rows in enumerate(loader, 1):
    scores = model(rows["seen"][:, :-1], rows["spans"])
    loss = functional.cross_entropy(scores.flatten(0, 1).float(), rows["seen"][:, 1:].flatten())
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0 or step == arguments.steps:
        accelerator.print(f"step {step} loss {loss.item():.4f}")
