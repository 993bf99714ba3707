"""A transformer over hyperspectral cubes, whole batches of which are sent from pageable memory. Fixed: pinned, not waited for."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
small = (2, 32, 4, 2, 16, 16)
layers, width, heads, batch, bands, side = small if arguments.small else (12, 768, 12, 24, 192, 96)
PATCH, COVERS, BATCHES = 4, 16, 3


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


class LandCover(nn.Module):
    """Says what covers the ground in every patch of a cube."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(bands * PATCH * PATCH, width)
        self.places = nn.Parameter(0.02 * torch.randn((side // PATCH) ** 2, width))
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, COVERS)

    def forward(self, cubes):
        patches = cubes.unflatten(3, (-1, PATCH)).unflatten(2, (-1, PATCH)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return self.leave(self.norm(self.blocks(self.enter(patches) + self.places)))


torch.manual_seed(0)
model = LandCover().to(device)
cubes = torch.rand(BATCHES, batch, bands, side, side)
covers = torch.randint(0, COVERS, (BATCHES, batch, (side // PATCH) ** 2)).to(device)
if arguments.fixed and has_gpu:
    cubes = cubes.pin_memory()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    inputs = cubes[step % BATCHES].to(device, non_blocking=arguments.fixed)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(inputs)
    loss = functional.cross_entropy(scores.float().flatten(0, 1), covers[step % BATCHES].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
