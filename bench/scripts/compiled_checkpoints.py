"""A masked autoencoder with compiled blocks, each checkpointed though memory is free. Fixed: activations kept."""
import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, batch, places = (2, 64, 4, 2, 16) if arguments.small else (12, 1024, 16, 64, 256)
PIXELS = 3 * 16 * 16


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


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(PIXELS, width), nn.Linear(width, PIXELS)
        self.hidden = nn.Parameter(0.02 * torch.randn(width))
        self.places = nn.Parameter(0.02 * torch.randn(places, width))
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, patches, masked):
        x = torch.where(masked[..., None], self.hidden, self.enter(patches)) + self.places
        for block in self.blocks:
            x = block(x) if arguments.fixed else checkpoint(block, x, use_reentrant=False)
        return self.leave(self.norm(x))


torch.manual_seed(0)
with torch.device(device):
    model = Autoencoder().to(torch.bfloat16)
    images = torch.randn(4, batch, places, PIXELS, dtype=torch.bfloat16)
    masks = torch.rand(4, batch, places) < 0.4
for block in model.blocks:
    block.compile(backend="inductor" if device == "cuda" else "aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(arguments.steps):
    patches, masked = images[step % 4], masks[step % 4]
    apart = (model(patches, masked) - patches).float().square().mean(-1)
    loss = (apart * masked).sum() / masked.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
