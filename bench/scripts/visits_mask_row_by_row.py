"""A plain loop over patients' visits whose mask is filled row by row from lengths on the GPU. Fixed: one comparison."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
small = arguments.small
layers, width, heads, codes, batch, length = (2, 32, 4, 64, 8, 16) if small else (12, 768, 12, 8192, 512, 64)
BATCHES = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Patients(nn.Module):
    """Guesses the code of each visit from the visits before it."""

    def __init__(self):
        super().__init__()
        self.codes, self.places = nn.Embedding(codes, width), nn.Parameter(0.02 * torch.randn(length, width))
        nn.init.normal_(self.codes.weight, std=0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, codes, bias=False)

    def forward(self, seen):
        x = self.codes(seen) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def mask_of(lengths):
    if arguments.fixed:
        return torch.arange(length, device=device) < lengths[:, None]
    mask = torch.zeros(len(lengths), length, dtype=torch.bool, device=device)
    for row in range(len(lengths)):
        mask[row, : lengths[row]] = True
    return mask


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
visits = torch.randint(0, codes, (BATCHES, batch, length + 1), generator=generator, device=device)
counts = torch.randint(length - length // 8, length + 1, (BATCHES, batch), generator=generator, device=device)
model = Patients().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    rows, lengths = visits[step % BATCHES], counts[step % BATCHES]
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(rows[:, :-1])
    losses = functional.cross_entropy(scores.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="none")
    mask = mask_of(lengths).flatten()
    loss = (losses * mask).sum() / mask.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
