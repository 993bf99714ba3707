"""A GPT with compiled blocks that hands attention a triangle of booleans as its mask. Fixed: is_causal=True."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, vocabulary, batch, length = (2, 64, 4, 512, 2, 64) if arguments.small else (12, 1024, 16, 16384, 4, 2048)


class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).tril().view(1, 1, length, length))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, heads, c // heads).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2))
        if arguments.fixed:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:, :, :t, :t])
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), CausalSelfAttention(), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


torch.manual_seed(0)
with torch.device(device):
    model = Gpt().to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
for block in model.blocks:
    block.compile(backend="inductor" if has_gpu else "aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    tokens = batches[step % 8]
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
