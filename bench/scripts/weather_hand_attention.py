"""A plain loop over a weather model whose attention is two products and a softmax. Fixed: scaled_dot_product_attention."""
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
layers, width, heads, batch, north, east = (2, 32, 4, 2, 8, 16) if arguments.small else (12, 768, 12, 8, 64, 128)
FIELDS, PATCH, DAYS = 48, 2, 8
places = (north // PATCH) * (east // PATCH)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = (width // heads) ** -0.5
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        if arguments.fixed:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q @ k.transpose(-2, -1)) * self.scale
            mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention()
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))


class Forecast(nn.Module):
    """From the fields of the air over the globe to those six hours later."""

    def __init__(self):
        super().__init__()
        self.enter, self.places = nn.Linear(FIELDS * PATCH**2, width), nn.Parameter(0.02 * torch.randn(places, width))
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, FIELDS * PATCH**2)

    def forward(self, now):
        patches = functional.pixel_unshuffle(now, PATCH).flatten(2).transpose(1, 2)
        x = self.leave(self.norm(self.blocks(self.enter(patches) + self.places)))
        change = x.transpose(1, 2).unflatten(2, (north // PATCH, east // PATCH))
        return now + functional.pixel_shuffle(change.float(), PATCH)


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
fields = torch.randn(DAYS + 1, batch, FIELDS, north, east, generator=generator, device=device)
weight = torch.linspace(-1.5, 1.5, north, device=device).cos()[:, None]
model = Forecast().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    day = step % DAYS
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        guess = model(fields[day])
    loss = (weight * (guess - fields[day + 1]).square()).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
