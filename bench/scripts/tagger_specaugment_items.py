"""A spectrogram transformer whose SpecAugment draws its masks on the GPU and reads them by item(). Fixed: drawn on the host."""
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
small = (2, 32, 4, 4, 32, 64)
layers, width, heads, batch, bands, frames = small if arguments.small else (12, 768, 12, 32, 128, 1024)
PATCH, TAGS, BATCHES = 16, 527, 4
MASKS = ((0, bands // 5), (0, bands // 5), (1, frames // 6), (1, frames // 6))


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


class Tagger(nn.Module):
    """Says which of many sounds are heard in a recording."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(PATCH * PATCH, width)
        self.places = nn.Parameter(0.02 * torch.randn(bands * frames // PATCH**2, width))
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, TAGS)

    def forward(self, spectra):
        patches = spectra.unflatten(2, (-1, PATCH)).unflatten(1, (-1, PATCH)).transpose(2, 3).flatten(3).flatten(1, 2)
        return self.leave(self.norm(self.blocks(self.enter(patches) + self.places).mean(dim=1)))


def below(limit, draw):
    return torch.randint(0, limit, (1,), device=draw.device, generator=draw).item()


def augmented(spectra, draw):
    """Hides two ranges of bands and two of frames in every spectrogram."""
    spectra = spectra.clone()
    for spectrum in spectra:
        for axis, widest in MASKS:
            wide = below(widest, draw)
            start = below(spectrum.shape[axis] - wide, draw)
            spectrum.narrow(axis, start, wide).zero_()
    return spectra


torch.manual_seed(0)
model = Tagger().to(device)
stored = torch.randn(BATCHES, batch, bands, frames).to(device)
tags = (torch.rand(BATCHES, batch, TAGS) < 0.01).float().to(device)
draw = torch.Generator("cpu" if arguments.fixed else device).manual_seed(0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    spectra = augmented(stored[step % BATCHES], draw)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(spectra)
    loss = functional.binary_cross_entropy_with_logits(scores.float(), tags[step % BATCHES])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
