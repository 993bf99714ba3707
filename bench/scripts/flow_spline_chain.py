"""A normalising flow whose splines are a chain of element-wise calls. Fixed: the spline compiled."""
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
backend = "inductor" if has_gpu else "aot_eager"
couplings, width, batch, columns = (2, 32, 32, 8) if arguments.small else (8, 512, 131072, 64)
BINS, BOUND, LEAST, BATCHES = 8, 4.0, 1e-3, 4
torch.set_float32_matmul_precision("high")


def knots(raw):
    shares = LEAST + (1 - LEAST * BINS) * torch.softmax(raw, dim=-1)
    return functional.pad(torch.cumsum(shares, dim=-1), (1, 0)) * (2 * BOUND) - BOUND


def spline(x, raw):
    """A monotone spline of rational quadratics, the identity beyond its bound, and the log of its slope."""
    widths, heights, slopes = raw.split([BINS, BINS, BINS - 1], dim=-1)
    across, up = knots(widths), knots(heights)
    slopes = functional.pad(LEAST + functional.softplus(slopes), (1, 1), value=1.0)
    inside = x.abs() < BOUND
    held = x.clamp(-BOUND, BOUND)
    at = (held[..., None] >= across[..., 1:-1]).sum(dim=-1, keepdim=True)
    left, right = across.gather(-1, at).squeeze(-1), across.gather(-1, at + 1).squeeze(-1)
    low, high = up.gather(-1, at).squeeze(-1), up.gather(-1, at + 1).squeeze(-1)
    here, there = slopes.gather(-1, at).squeeze(-1), slopes.gather(-1, at + 1).squeeze(-1)
    slant = (high - low) / (right - left)
    t = (held - left) / (right - left)
    u = t * (1 - t)
    under = slant + (here + there - 2 * slant) * u
    y = low + (high - low) * (slant * t.square() + here * u) / under
    slope = slant.square() * (there * t.square() + 2 * slant * u + here * (1 - t).square()) / under.square()
    return torch.where(inside, y, x), torch.where(inside, slope.log(), torch.zeros_like(x)).sum(dim=-1)


if arguments.fixed:
    spline = torch.compile(spline, backend=backend)


class Coupling(nn.Module):
    """Bends one half of the columns by splines that the other half chooses."""

    def __init__(self):
        super().__init__()
        half = columns // 2
        inner = [nn.Linear(half, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.net = nn.Sequential(*inner, nn.Linear(width, half * (3 * BINS - 1)))

    def forward(self, x):
        kept, bent = x.chunk(2, dim=1)
        bent, slope = spline(bent, self.net(kept).view(*bent.shape, 3 * BINS - 1))
        return torch.cat([bent, kept], dim=1), slope


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
tables = torch.randn(BATCHES, batch, columns, generator=generator, device=device)
flow = nn.ModuleList(Coupling() for _ in range(couplings)).to(device)
optimizer = torch.optim.AdamW(flow.parameters(), lr=3e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    x, slopes = tables[step % BATCHES], 0.0
    for coupling in flow:
        x, slope = coupling(x)
        slopes = slopes + slope
    loss = (0.5 * x.square().sum(dim=1) - slopes).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
