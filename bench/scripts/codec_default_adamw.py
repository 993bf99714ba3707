"""A masked model of audio codes trained with AdamW as it comes, in a pass per operation. Fixed: fused=True."""
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
layers, width, heads, batch, length = (2, 64, 4, 2, 32) if arguments.small else (12, 1024, 16, 24, 512)
CODES, MASK = 1024, 1024


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


class CodecModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes, self.places = nn.Embedding(CODES + 1, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CODES)

    def forward(self, codes):
        x = self.codes(codes) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
with torch.device(device):
    model = CodecModel()
    clips = torch.randint(0, CODES, (8, batch, length))
more = {"fused": True} if arguments.fixed else {}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.96), weight_decay=0.045, **more)
for step in range(1, arguments.steps + 1):
    codes = clips[step % 8]
    hidden = torch.rand(codes.shape, device=device) < torch.rand(batch, 1, device=device)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(codes.masked_fill(hidden, MASK))
    losses = functional.cross_entropy(scores.float().flatten(0, 1), codes.flatten(), reduction="none")
    loss = (losses * hidden.flatten()).sum() / hidden.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
