"""A transformer over EEG whose epochs, float64 as NumPy made them, are sent pageable. Fixed: kept as pinned float32."""
import argparse

import numpy
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=130)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, batch, samples = (2, 32, 4, 4, 64) if arguments.small else (6, 512, 8, 128, 2048)
CHANNELS, PATCH, STAGES, BATCHES = 64, 4, 5, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Sleep(nn.Module):
    """Says of every epoch which stage of sleep it is part of."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(CHANNELS * PATCH, width)
        self.places = nn.Parameter(0.02 * torch.randn(samples // PATCH, width))
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, STAGES)

    def forward(self, epochs):
        patches = epochs.unflatten(2, (-1, PATCH)).transpose(1, 2).flatten(2)
        return self.head(self.norm(self.blocks(self.enter(patches) + self.places).mean(dim=1)))


torch.manual_seed(0)
draw = numpy.random.default_rng(0)
epochs = draw.standard_normal((BATCHES, batch, CHANNELS, samples))
stages = torch.from_numpy(draw.integers(0, STAGES, (BATCHES, batch))).to(device)
if arguments.fixed:
    ready = torch.from_numpy(epochs.astype(numpy.float32))
    ready = ready.pin_memory() if has_gpu else ready
model = Sleep().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    if arguments.fixed:
        inputs = ready[step % BATCHES].to(device, non_blocking=True)
    else:
        inputs = torch.from_numpy(epochs[step % BATCHES]).to(device).float()
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(inputs)
    loss = functional.cross_entropy(scores.float(), stages[step % BATCHES])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
