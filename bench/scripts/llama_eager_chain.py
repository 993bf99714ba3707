"""A plain loop over a LLaMA whose norms, rotations and gates are chains of element-wise calls. Fixed: blocks compiled."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
small = (2, 64, 4, 128, 256, 2, 32)
layers, width, heads, hidden, vocabulary, batch, length = small if arguments.small else (8, 2048, 16, 5632, 16384, 8, 1024)
head = width // heads


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotated(x, cosine, sine):
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cosine + torch.cat((-second, first), dim=-1) * sine).to(x.dtype)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = Norm(), Norm()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cosine, sine):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, s, 3, heads, head).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, width))
        inner = self.after(x)
        gate = self.gate(inner)
        return x + self.down(gate * torch.sigmoid(gate) * self.up(inner))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, cosine, sine):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cosine, sine)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Llama().to(device, torch.bfloat16)
if arguments.fixed:
    for block in model.blocks:
        block.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
angles = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2).to(device)
cosine, sine = angles.cos(), angles.sin()
tokens = torch.randint(0, vocabulary, (4, batch, length + 1), device=device)
for step in range(arguments.steps):
    row = tokens[step % 4]
    logits = model(row[:, :-1], cosine, sine)
    loss = functional.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
