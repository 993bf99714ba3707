"""A compiled genome transformer whose workers make DNA one-hot letter by letter. Fixed: a table in NumPy."""
import argparse

import numpy
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
backend = "inductor" if has_gpu else "aot_eager"
layers, width, heads, batch, letters, workers = (2, 32, 4, 4, 256, 2) if arguments.small else (6, 512, 8, 64, 16384, 8)
PATCH, TRACKS, GENOME = 16, 32, 4_000_000
ONE_HOT = {"A": [1.0, 0.0, 0.0, 0.0], "C": [0.0, 1.0, 0.0, 0.0], "G": [0.0, 0.0, 1.0, 0.0], "T": [0.0, 0.0, 0.0, 1.0]}
ONE_HOT["N"] = [0.25, 0.25, 0.25, 0.25]
OTHER = {"A": "T", "C": "G", "G": "C", "T": "A", "N": "N"}
TABLE, OTHER_TABLE = numpy.zeros((256, 4), numpy.float32), numpy.zeros(256, numpy.uint8)
for letter, row in ONE_HOT.items():
    TABLE[ord(letter)], OTHER_TABLE[ord(letter)] = row, ord(OTHER[letter])


class Windows(torch.utils.data.Dataset):
    """Windows of the genome, every second one read from the other strand."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        codes = numpy.frombuffer(b"ACGTN", numpy.uint8)
        self.genome = draw.choice(codes, GENOME, p=[0.29, 0.2, 0.2, 0.29, 0.02]).tobytes()
        self.starts = draw.integers(0, GENOME - letters, 4096)
        self.tracks = draw.random((512, letters // PATCH, TRACKS), dtype=numpy.float32)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        start = self.starts[index % 4096]
        window = self.genome[start : start + letters]
        if arguments.fixed:
            window = numpy.frombuffer(window, numpy.uint8)
            rows = torch.from_numpy(TABLE[OTHER_TABLE[window[::-1]] if index % 2 else window])
        else:
            window = window.decode()
            if index % 2:
                window = "".join(OTHER[letter] for letter in reversed(window))
            rows = torch.tensor([ONE_HOT[letter] for letter in window])
        return rows, self.tracks[index % 512]


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


class Reader(nn.Module):
    """Predicts the tracks measured along a window, a value for every sixteen letters."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(4 * PATCH, width), nn.Linear(width, TRACKS)
        self.places = nn.Parameter(0.02 * torch.randn(letters // PATCH, width))
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])

    def forward(self, rows):
        return self.leave(self.blocks(self.enter(rows.flatten(1).view(len(rows), -1, 4 * PATCH)) + self.places))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Reader().to(device)
    model.compile(backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
    loader = torch.utils.data.DataLoader(
        Windows(), batch_size=batch, num_workers=workers, pin_memory=has_gpu, drop_last=True
    )
    for step, (rows, tracks) in enumerate(loader, start=1):
        rows, tracks = rows.to(device, non_blocking=True), tracks.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
            found = model(rows)
        loss = functional.poisson_nll_loss(found.float(), tracks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 25 == 0 or step == arguments.steps:
            print(f"step {step} loss {loss.item():.4f}")
