"""A compiled transformer whose gated activation was once held out of the compiler. Fixed: compiled with the rest."""
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
layers, width, inner, heads, vocabulary, batch, length = (
    (2, 64, 128, 4, 512, 2, 32) if arguments.small else (8, 1024, 3072, 16, 16384, 16, 1024)
)


def gated(gate, up):
    """GELU by its tanh form in single precision, as the paper has it."""
    x = gate.float()
    inside = 0.7978845608 * (x + 0.044715 * x**3)
    return (0.5 * x * (1.0 + torch.tanh(inside)) * up.float()).to(gate.dtype)


if not arguments.fixed:
    gated = torch.compiler.disable(gated)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.between(x)
        return x + self.down(gated(self.gate(y), self.up(y)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
with torch.device(device):
    model = Model().to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
for block in model.blocks:
    block.compile(backend="inductor" if device == "cuda" else "aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(arguments.steps):
    tokens = batches[step % len(batches)]
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
