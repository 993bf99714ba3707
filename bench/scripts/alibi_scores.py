"""A plain loop over a decoder that adds ALiBi slopes to scores held in memory. Fixed: the slopes as the fused call's mask."""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=130)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 32) if arguments.small else (8, 768, 12, 8192, 32, 512)


def slopes_and_mask():
    """(heads, s, s): a penalty for distance, steeper from head to head, and minus infinity ahead."""
    slopes = torch.tensor([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])
    places = torch.arange(length)
    distance = places[None, :] - places[:, None]
    return (slopes[:, None, None] * distance).masked_fill(distance > 0, -math.inf)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def mixed(self, q, k, v, bias):
        if arguments.fixed:
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].expand(q.shape[0], -1, -1, -1))
        scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5) + bias
        return scores.float().softmax(dim=-1).to(q.dtype) @ v

    def forward(self, x, bias):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(self.mixed(q, k, v, bias).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("bias", slopes_and_mask())

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.bias)
        return self.head(self.norm(x))


torch.manual_seed(0)
with torch.device(device):
    model = Model().to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(arguments.steps):
    tokens = batches[step % len(batches)]
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
