"""A captured protein tagger whose one graph pads every batch to the longest there may be. Fixed: a graph per length."""
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
layers, width, heads, batch, longest, stride = (2, 64, 4, 4, 64, 16) if arguments.small else (12, 768, 12, 32, 512, 64)
PAD, RESIDUES, FOLDS, IGNORED, DRAWN = 0, 26, 8, -100, 48


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, real):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, attn_mask=real).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Tagger(nn.Module):
    """Says of each residue which fold it is part of."""

    def __init__(self):
        super().__init__()
        self.residues, self.places = nn.Embedding(RESIDUES, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, FOLDS)

    def forward(self, rows):
        x = self.residues(rows) + self.places.weight[: rows.shape[1]]
        real = (rows != PAD)[:, None, None, :].expand(-1, -1, rows.shape[1], -1)
        for block in self.blocks:
            x = block(x, real)
        return self.head(self.norm(x))


def proteins():
    """Batches of rows and tags, filled up to the longest length, and how long the longest row of each is."""
    draw = numpy.random.default_rng(0)
    lengths = numpy.clip(draw.lognormal(numpy.log(longest / 5.7), 0.5, (DRAWN, batch)).astype(int), 4, longest)
    rows, tags = draw.integers(1, RESIDUES, (DRAWN, batch, longest)), draw.integers(0, FOLDS, (DRAWN, batch, longest))
    beyond = numpy.arange(longest) >= lengths[:, :, None]
    rows[beyond], tags[beyond] = PAD, IGNORED
    return torch.from_numpy(rows).to(device), torch.from_numpy(tags).to(device), lengths.max(1).tolist()


torch.manual_seed(0)
all_rows, all_tags, needed = proteins()
with torch.device(device):
    model = Tagger().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
# The graphs read their input and write their gradients where they found them.
rows, tags = all_rows[0].clone(), all_tags[0].clone()
for parameter in model.parameters():
    parameter.grad = torch.zeros_like(parameter)


def forward_backward(length):
    optimizer.zero_grad(set_to_none=False)
    scores = model(rows[:, :length]).float()
    loss = functional.cross_entropy(scores.flatten(0, 1), tags[:, :length].flatten(), ignore_index=IGNORED)
    loss.backward()
    return loss.detach()


lengths = list(range(stride, longest + 1, stride)) if arguments.fixed else [longest]
graphs, losses, pool = {}, {}, None
if has_gpu:
    for length in reversed(lengths):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                forward_backward(length)
        torch.cuda.current_stream().wait_stream(side)
        graphs[length] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[length], pool=pool):
            losses[length] = forward_backward(length)
        pool = graphs[length].pool()
for step in range(1, arguments.steps + 1):
    at = step % DRAWN
    rows.copy_(all_rows[at])
    tags.copy_(all_tags[at])
    length = next(length for length in lengths if length >= needed[at])
    if has_gpu:
        graphs[length].replay()
        loss = losses[length]
    else:
        loss = forward_backward(length)
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
