"""A plain loop with attention written by hand, scores in memory. Fixed: scaled_dot_product_attention."""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, batch, length = (2, 64, 4, 2, 64) if arguments.small else (8, 1024, 16, 8, 2048)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        if arguments.fixed:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // heads)
            mixed = torch.softmax(scores, dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, width))
        return x + self.down(functional.gelu(self.up(self.norm_after(x))))


torch.manual_seed(0)
model = nn.Sequential(*[Block() for _ in range(layers)]).to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
inputs = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
for _ in range(arguments.steps):
    loss = model(inputs).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
