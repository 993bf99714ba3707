"""A captured GPT whose vocabulary of 50257 leaves the rows of its logits unaligned. Fixed: the head padded to 50304."""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 509, 2, 32) if arguments.small else (6, 768, 12, 50257, 16, 1024)


class Block(nn.Module):
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


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False).weight.detach()
        added = -vocabulary % 64 if arguments.fixed else 0
        self.head = nn.Parameter(functional.pad(head, (0, 0, 0, added)))
        # Rows that were added get no probability.
        shut = torch.zeros(vocabulary + added)
        shut[vocabulary:] = -math.inf
        self.register_buffer("shut", shut if arguments.fixed else None)

    def forward(self, tokens):
        x = self.norm(self.blocks(self.embedding(tokens) + self.position.weight))
        return functional.linear(x.flatten(0, 1), self.head, self.shut)


torch.manual_seed(0)
with torch.device(device):
    model = Model().to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
tokens = batches[0].clone()


def forward_backward():
    loss = functional.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].flatten())
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
