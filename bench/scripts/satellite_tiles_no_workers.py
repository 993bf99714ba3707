"""A plain loop over satellite tiles augmented in numpy by a DataLoader without workers. Fixed: eight workers."""
import argparse

import numpy
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
blocks, width, batch, tiles, side, crop = (2, 16, 4, 8, 72, 64) if small else (16, 256, 24, 128, 256, 224)
BANDS, CLASSES = 4, 10
torch.backends.cudnn.benchmark = True


class Tiles(torch.utils.data.Dataset):
    """Tiles of four bands in 16 bits with a class for each pixel, cropped, turned, brightened and made noisy."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        self.bands = draw.integers(0, 10000, (tiles, BANDS, side, side), dtype=numpy.uint16)
        self.classes = draw.integers(0, CLASSES, (tiles, side, side), dtype=numpy.uint8)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        draw = numpy.random.default_rng(index)
        top, left = draw.integers(0, side - crop, 2)
        bands = self.bands[index % tiles, :, top : top + crop, left : left + crop].astype(numpy.float32) / 10000
        classes = self.classes[index % tiles, top : top + crop, left : left + crop]
        turns = int(draw.integers(0, 4))
        bands, classes = numpy.rot90(bands, turns, (1, 2)), numpy.rot90(classes, turns)
        if draw.random() < 0.5:
            bands, classes = bands[:, :, ::-1], classes[:, ::-1]
        bands = bands ** draw.uniform(0.7, 1.4, (BANDS, 1, 1)).astype(numpy.float32)
        bands = bands + 0.02 * draw.standard_normal(bands.shape, dtype=numpy.float32)
        bands = (bands - 0.5) / 0.29
        return torch.from_numpy(numpy.ascontiguousarray(bands)), torch.from_numpy(classes.astype(numpy.int64))


class Dilated(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm, self.norm_after = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = functional.relu(self.norm(self.first(x)), inplace=True)
        return functional.relu(x + self.norm_after(self.second(y)), inplace=True)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Sequential(
            nn.Conv2d(BANDS, width // 2, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width // 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 2, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        self.body = nn.Sequential(*(Dilated(1 + n % 2) for n in range(blocks)))
        self.leave = nn.Sequential(nn.Conv2d(width, 16 * CLASSES, 1), nn.PixelShuffle(4))

    def forward(self, x):
        return self.leave(self.body(self.enter(x)))


def main():
    torch.manual_seed(0)
    model = Segmenter().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=has_gpu)
    workers = (2 if small else 8) if arguments.fixed else 0
    loader = torch.utils.data.DataLoader(Tiles(), batch_size=batch, shuffle=True, num_workers=workers, pin_memory=has_gpu)
    for step, (bands, classes) in enumerate(loader, 1):
        bands = bands.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        classes = classes.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
            scores = model(bands)
        loss = functional.cross_entropy(scores.float(), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 25 == 0 or step == arguments.steps:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
