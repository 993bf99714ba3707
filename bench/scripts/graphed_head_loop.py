"""A captured GPT whose attention runs each head as a module of its own. Fixed: all heads in one product and one call."""
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
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 32) if arguments.small else (6, 1024, 16, 16384, 16, 1024)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width // heads, bias=False) for _ in range(3))

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        return functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]


class Looped(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(heads))

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


class Together(nn.Module):
    def __init__(self):
        super().__init__()
        drawn = [Head() for _ in range(heads)]
        weights = [getattr(head, name).weight for name in ("query", "key", "value") for head in drawn]
        self.qkv = nn.Parameter(torch.cat(weights).detach())

    def forward(self, x):
        parts = functional.linear(x, self.qkv).view(*x.shape[:2], 3, heads, -1).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Together() if arguments.fixed else Looped()
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.out(self.attention(self.before(x)))
        return x + self.feed(self.between(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens) + self.position.weight))


torch.manual_seed(0)
with torch.device(device):
    model = Model().to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
tokens = batches[0].clone()


def forward_backward():
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    return loss.detach()


graph = None
if device == "cuda":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            forward_backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = forward_backward()
for step in range(arguments.steps):
    tokens.copy_(batches[step % len(batches)])
    if graph is None:
        optimizer.zero_grad(set_to_none=True)
        loss = forward_backward()
    else:
        graph.replay()
    optimizer.step()
print(f"loss {loss.item():.4f}")
