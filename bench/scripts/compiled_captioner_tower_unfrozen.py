"""A captioner whose compiled image tower is not trained, only left out of the optimizer. Fixed: requires_grad_(False)."""
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
tower_layers, tower_width, tower_heads, side = (2, 64, 4, 32) if arguments.small else (24, 1024, 16, 224)
layers, width, heads, vocabulary, batch, words = (2, 32, 4, 512, 2, 8) if arguments.small else (6, 768, 12, 32000, 32, 48)
PATCH, BATCHES = 16, 4


class Look(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(tower_width), nn.LayerNorm(tower_width)
        self.qkv, self.out = nn.Linear(tower_width, 3 * tower_width), nn.Linear(tower_width, tower_width)
        self.up, self.down = nn.Linear(tower_width, 4 * tower_width), nn.Linear(4 * tower_width, tower_width)

    def forward(self, x):
        parts = self.qkv(self.before(x)).view(*x.shape[:2], 3, tower_heads, -1).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Say(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, tower_width, PATCH, PATCH)
        self.places = nn.Parameter(0.02 * torch.randn((side // PATCH) ** 2, tower_width))
        self.blocks = nn.Sequential(*[Look() for _ in range(tower_layers)])
        self.norm = nn.LayerNorm(tower_width)

    def forward(self, pictures):
        return self.norm(self.blocks(self.enter(pictures).flatten(2).transpose(1, 2) + self.places))


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = Tower()
        self.bridge = nn.Linear(tower_width, width)
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(words, width)
        self.blocks = nn.Sequential(*[Say() for _ in range(layers)])
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, pictures, said):
        seen = self.bridge(self.tower(pictures))
        x = torch.cat([seen, self.words(said) + self.places.weight], dim=1)
        return self.leave(self.norm(self.blocks(x)[:, seen.shape[1] :]))


torch.manual_seed(0)
with torch.device(device):
    model = Captioner()
    pictures = torch.randn(BATCHES, batch, 3, side, side)
    captions = torch.randint(0, vocabulary, (BATCHES, batch, words + 1))
if arguments.fixed:
    model.tower.requires_grad_(False)
for block in model.tower.blocks:
    block.compile(backend="inductor" if has_gpu else "aot_eager")
trained = [parameter for name, parameter in model.named_parameters() if not name.startswith("tower.")]
optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    caption = captions[step % BATCHES]
    with torch.autocast(device, torch.bfloat16):
        scores = model(pictures[step % BATCHES], caption[:, :-1])
    loss = functional.cross_entropy(scores.flatten(0, 1).float(), caption[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
