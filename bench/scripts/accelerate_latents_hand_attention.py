"""Accelerate over a latent denoiser whose attention is two einsums and a softmax. Fixed: scaled_dot_product_attention."""
import argparse
import math

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

width, heads, batch, side, words, deep = (32, 4, 2, 16, 7, 24) if arguments.small else (320, 8, 4, 64, 77, 768)
GROUPS, MOMENTS, CHANNELS = 16, 1000, 4


class Attention(nn.Module):
    def __init__(self, size, outside):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(entering, size, bias=False) for entering in (size, outside, outside))
        self.out = nn.Linear(size, size)

    def forward(self, x, seen):
        parts = self.q(x), self.k(seen), self.v(seen)
        q, k, v = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts)
        if arguments.fixed:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
            mixed = torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up, self.down = nn.Linear(size, 8 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        value, gate = self.up(x).chunk(2, dim=-1)
        return self.down(value * functional.gelu(gate))


class Mix(nn.Module):
    """Lets every place of the picture see all others, then the words."""

    def __init__(self, size):
        super().__init__()
        self.norm, self.enter, self.leave = nn.GroupNorm(GROUPS, size), nn.Linear(size, size), nn.Linear(size, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(3))
        self.within, self.across, self.feed = Attention(size, size), Attention(size, deep), Gated(size)

    def forward(self, picture, text):
        x = self.enter(self.norm(picture).flatten(2).transpose(1, 2))
        y = self.norms[0](x)
        x = x + self.within(y, y)
        x = x + self.across(self.norms[1](x), text)
        x = x + self.feed(self.norms[2](x))
        return picture + self.leave(x).transpose(1, 2).unflatten(2, picture.shape[2:])


class Stage(nn.Module):
    """A residual pair of convolutions that is told the time, then attention."""

    def __init__(self, before, after):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(GROUPS, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(GROUPS, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1))
        self.time, self.mix = nn.Linear(4 * width, after), Mix(after)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x, time, text):
        y = self.second(self.first(x) + self.time(time)[:, :, None, None])
        return self.mix(self.skip(x) + y, text)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width), nn.SiLU())
        self.enter, self.leave = nn.Conv2d(CHANNELS, width, 3, padding=1), nn.Conv2d(width, CHANNELS, 3, padding=1)
        self.fall, self.rise = nn.Conv2d(width, width, 3, 2, 1), nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.down = nn.ModuleList([Stage(width, width), Stage(width, width)])
        self.low = nn.ModuleList([Stage(width, 2 * width), Stage(2 * width, 2 * width), Stage(2 * width, 2 * width)])
        self.up = nn.ModuleList([Stage(3 * width, width), Stage(2 * width, width)])
        self.norm = nn.GroupNorm(GROUPS, width)
        self.register_buffer("rates", torch.exp(torch.arange(width // 2) * (-2 * math.log(10000.0) / width)))

    def forward(self, latents, times, text):
        angles = times[:, None] * self.rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        x, kept = self.enter(latents), []
        for stage in self.down:
            x = stage(x, time, text)
            kept.append(x)
        x = self.fall(x)
        for stage in self.low:
            x = stage(x, time, text)
        x = self.rise(functional.interpolate(x, scale_factor=2.0))
        for stage in self.up:
            x = stage(torch.cat([x, kept.pop()], dim=1), time, text)
        return self.leave(functional.silu(self.norm(x)))


torch.manual_seed(0)
has_gpu = torch.cuda.is_available()
accelerator = Accelerator(mixed_precision="bf16" if has_gpu else "no", cpu=not has_gpu)
model = Denoiser().to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
rows = arguments.steps * batch
data = torch.utils.data.TensorDataset(torch.randn(rows, CHANNELS, side, side), torch.randn(rows, words, deep))
loader = torch.utils.data.DataLoader(data, batch_size=batch, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
kept_share = torch.cumprod(1 - torch.linspace(1e-4, 0.02, MOMENTS), dim=0).to(accelerator.device)
for step, (latents, text) in enumerate(loader, 1):
    times = torch.randint(0, MOMENTS, (batch,), device=accelerator.device)
    noise = torch.randn_like(latents)
    share = kept_share[times][:, None, None, None]
    noisy = (share.sqrt() * latents + (1 - share).sqrt() * noise).contiguous(memory_format=torch.channels_last)
    loss = functional.mse_loss(model(noisy, times, text).float(), noise)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0 or step == arguments.steps:
        accelerator.print(f"step {step} loss {loss.item():.4f}")
