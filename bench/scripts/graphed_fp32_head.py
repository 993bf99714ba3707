"""A captured GPT in bfloat16 whose head is kept in single precision, on no tensor core. Fixed: its products in TF32."""
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
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 32) if arguments.small else (12, 768, 12, 16384, 16, 512)
if arguments.fixed:
    torch.set_float32_matmul_precision("high")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Head(nn.Linear):
    """Logits want all their digits: computed in single precision."""

    def forward(self, x):
        return super().forward(x.float())


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width), Head(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens) + self.position.weight)))


torch.manual_seed(0)
with torch.device(device):
    model = Gpt().to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
model.head.float()
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
for step in range(1, arguments.steps + 1):
    tokens.copy_(batches[step % len(batches)])
    if graph is None:
        optimizer.zero_grad(set_to_none=True)
        loss = forward_backward()
    else:
        # Every replay writes the gradients anew.
        graph.replay()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
