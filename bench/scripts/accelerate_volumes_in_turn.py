"""Accelerate over a volume transformer whose scans are cut and varied by NumPy in the loop itself. Fixed: num_workers=8."""
import argparse

import numpy
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = arguments.small
layers, width, heads, batch, side, scans = (2, 64, 4, 2, 32, 2) if small else (16, 1024, 16, 4, 96, 12)
workers = (2 if small else 8) if arguments.fixed else 0
CUBE, ORGANS = 8, 4
places = (side // CUBE) ** 3


class Scans(torch.utils.data.Dataset):
    """Tomograms as they are stored, in 16 bits; every draw cuts a cube out of one and varies it."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        whole = 3 * side // 2
        self.scans = draw.integers(-1000, 1000, (scans, whole, whole, whole), dtype=numpy.int16)
        self.organs = (self.scans > 200).astype(numpy.uint8) + (self.scans > 600)

    def __len__(self):
        return batch * arguments.steps

    def __getitem__(self, index):
        draw = numpy.random.default_rng(index)
        scan = index % scans
        x, y, z = draw.integers(0, side // 2, 3)
        cut = (scan, slice(x, x + side), slice(y, y + side), slice(z, z + side))
        volume, organs = self.scans[cut], self.organs[cut]
        for axis in range(3):
            if draw.random() < 0.5:
                volume, organs = numpy.flip(volume, axis), numpy.flip(organs, axis)
        volume = numpy.clip(volume.astype(numpy.float32), -800.0, 800.0)
        volume *= numpy.float32(draw.uniform(0.9, 1.1) / 400.0)
        volume += numpy.float32(0.05) * draw.standard_normal(volume.shape, dtype=numpy.float32)
        return torch.from_numpy(numpy.ascontiguousarray(volume)), torch.from_numpy(numpy.ascontiguousarray(organs))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


def cubes(x):
    """(b, s, s, s) to (b, places, voxels of a cube)."""
    n = side // CUBE
    x = x.view(len(x), n, CUBE, n, CUBE, n, CUBE).permute(0, 1, 3, 5, 2, 4, 6)
    return x.reshape(len(x), places, CUBE**3)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(CUBE**3, width), nn.Linear(width, ORGANS * CUBE**3)
        self.places = nn.Parameter(0.02 * torch.randn(places, width))
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, volumes, organs):
        x = self.blocks(self.enter(cubes(volumes)) + self.places)
        scores = self.leave(self.norm(x)).view(-1, ORGANS, CUBE**3)
        return functional.cross_entropy(scores, cubes(organs).long().view(-1, CUBE**3))


if __name__ == "__main__":
    torch.manual_seed(0)
    accelerator = Accelerator(
        mixed_precision="bf16" if has_gpu else "no",
        cpu=not has_gpu,
        dataloader_config=DataLoaderConfiguration(non_blocking=True),
    )
    model = Segmenter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
    loader = torch.utils.data.DataLoader(Scans(), batch_size=batch, num_workers=workers, pin_memory=has_gpu)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (volumes, organs) in enumerate(loader, 1):
        loss = model(volumes, organs)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == arguments.steps:
            print(f"step {step} loss {loss.item():.4f}")
