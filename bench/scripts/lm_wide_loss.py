"""A compiled GPT whose loss, over a large vocabulary, is left outside in single precision. Fixed: the loss compiled too."""
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
small = (2, 64, 4, 512, 2, 32)
layers, width, heads, vocabulary, batch, length = small if arguments.small else (6, 1024, 16, 128256, 8, 1024)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, width))
        return x + self.down(functional.gelu(self.up(self.norm_after(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(logits, tokens):
    logits = logits.float()
    shifted = logits[:, :-1, :].contiguous()
    return functional.cross_entropy(shifted.view(-1, vocabulary), tokens[:, 1:].reshape(-1))


torch.manual_seed(0)
model = Model()
nn.init.normal_(model.embedding.weight, std=0.02)
model = model.to(device, torch.bfloat16)
for block in model.blocks:
    block.compile()
if arguments.fixed:
    loss_of = torch.compile(loss_of)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
tokens = torch.randint(0, vocabulary, (4, batch, length), device=device)
for step in range(arguments.steps):
    row = tokens[step % 4]
    loss = loss_of(model(row), row)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
