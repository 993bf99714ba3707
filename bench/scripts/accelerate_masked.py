"""Accelerate with accumulated gradients over a GPT that adds a causal mask to its scores. Fixed: fused causal attention."""
import argparse
import math

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
small = (2, 64, 4, 256, 2, 32)
layers, width, heads, vocabulary, batch, length = small if arguments.small else (4, 1024, 16, 16384, 4, 2048)
ACCUMULATED = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask[None, None], persistent=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        if arguments.fixed:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // heads)
            weights = torch.softmax(scores.float() + self.mask[:, :, :s, :s], dim=-1).to(v.dtype)
            mixed = weights @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(b, s, width))
        return x + self.down(functional.gelu(self.up(self.norm_after(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


torch.manual_seed(0)
accelerator = Accelerator(
    mixed_precision="bf16" if has_gpu else "no",
    cpu=not has_gpu,
    gradient_accumulation_steps=ACCUMULATED,
)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
rows = torch.randint(0, vocabulary, (arguments.steps * ACCUMULATED * batch, length + 1))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=batch, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for (tokens,) in loader:
    with accelerator.accumulate(model):
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
