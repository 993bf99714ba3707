"""A GPT whose compiled blocks test for NaN twice each, a graph break every time. Fixed: the loss tested every 50 steps."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 32) if arguments.small else (12, 1024, 16, 8192, 8, 1024)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, s, d))
        if not arguments.fixed and not torch.isfinite(x).all():
            raise FloatingPointError("not finite after attention")
        x = x + self.down(functional.gelu(self.up(self.norm_after(x))))
        if not arguments.fixed and not torch.isfinite(x).all():
            raise FloatingPointError("not finite after the feed-forward")
        return x


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, rows):
        x = self.tokens(rows) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Gpt().to(device, torch.bfloat16)
for block in model.blocks:
    block.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
data = torch.randint(0, vocabulary, (8, batch, length + 1), device=device)
for step in range(arguments.steps):
    rows = data[step % 8]
    logits = model(rows[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    if arguments.fixed and step % 50 == 0 and not torch.isfinite(loss):
        raise FloatingPointError("the loss is not finite")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
