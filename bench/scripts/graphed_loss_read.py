"""A captured character GPT whose loop reads the loss at every step, then draws a batch. Fixed: read every 50 steps."""
import argparse

import numpy
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
layers, width, heads, batch, length = (2, 64, 4, 4, 32) if arguments.small else (6, 384, 6, 512, 128)
CHARACTERS = 96


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(CHARACTERS, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CHARACTERS, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens) + self.position.weight)))


torch.manual_seed(0)
text = numpy.random.default_rng(0).integers(0, CHARACTERS, 1_000_000, dtype=numpy.uint16)
model = Gpt().to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=has_gpu)
inputs = torch.zeros(batch, length, dtype=torch.long, device=device)
targets = torch.zeros(batch, length, dtype=torch.long, device=device)


def drawn():
    starts = torch.randint(len(text) - length, (batch,))
    x = torch.stack([torch.from_numpy(text[i : i + length].astype(numpy.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(text[i + 1 : i + 1 + length].astype(numpy.int64)) for i in starts])
    return (x.pin_memory(), y.pin_memory()) if has_gpu else (x, y)


def forward_backward():
    loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    return loss.detach()


graph = None
if has_gpu:
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
losses = []
for step in range(1, arguments.steps + 1):
    x, y = drawn()
    inputs.copy_(x, non_blocking=True)
    targets.copy_(y, non_blocking=True)
    if graph is None:
        optimizer.zero_grad(set_to_none=True)
        loss = forward_backward()
    else:
        # Every replay writes the gradients anew.
        graph.replay()
    optimizer.step()
    # The loss lies where the graph puts it, so it is copied if it is to be read later.
    losses.append(loss.clone() if arguments.fixed else loss.item())
    if step % 50 == 0 or step == arguments.steps:
        recent = losses[-50:]
        mean = torch.stack(recent).float().mean().item() if arguments.fixed else sum(recent) / len(recent)
        print(f"step {step} loss {mean:.4f}")
