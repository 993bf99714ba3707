"""A plain loop over a mixture of experts that picks each expert's tokens by a mask. Fixed: sorted once, grouped products."""
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
layers, width, inner, heads, experts, chosen, vocabulary, batch, length = (
    (2, 64, 64, 4, 4, 2, 512, 2, 32) if arguments.small else (6, 1024, 1024, 16, 32, 2, 16384, 8, 1024)
)


class Expert(nn.Module):
    def __init__(self, gate, up, down):
        super().__init__()
        self.gate, self.up, self.down = (nn.Parameter(weight.clone()) for weight in (gate, up, down))

    def forward(self, x):
        return (functional.silu(x @ self.gate) * (x @ self.up)) @ self.down


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        gate, up, down = (
            0.02 * torch.randn(experts, *shape) for shape in ((width, inner), (width, inner), (inner, width))
        )
        if arguments.fixed:
            self.gate, self.up, self.down = nn.Parameter(gate), nn.Parameter(up), nn.Parameter(down)
        else:
            self.experts = nn.ModuleList(Expert(*weights) for weights in zip(gate, up, down))

    def forward(self, x):
        tokens = x.reshape(-1, width)
        scores = self.router(tokens).float().softmax(dim=-1)
        weights, index = scores.topk(chosen, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        combined = self.grouped if arguments.fixed else self.looped
        return combined(tokens, weights, index).view_as(x)

    def looped(self, tokens, weights, index):
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            row, slot = torch.where(index == number)
            out.index_add_(0, row, expert(tokens[row]) * weights[row, slot, None])
        return out

    def grouped(self, tokens, weights, index):
        flat = index.flatten()
        order = flat.argsort(stable=True)
        ends = (flat[:, None] == torch.arange(experts, device=flat.device)).sum(dim=0).cumsum(dim=0).to(torch.int32)
        picked = tokens.index_select(0, order // chosen)
        hidden = functional.silu(functional.grouped_mm(picked, self.gate, offs=ends))
        hidden = hidden * functional.grouped_mm(picked, self.up, offs=ends)
        done = functional.grouped_mm(hidden, self.down, offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        done = done.index_select(0, back).view(-1, chosen, width)
        return (done * weights[..., None]).sum(dim=1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mixture = Mixture()

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mixture(self.between(x))


torch.manual_seed(0)
with torch.device(device):
    model = nn.Sequential(nn.Embedding(vocabulary, width), *(Block() for _ in range(layers)), nn.Linear(width, vocabulary))
    model = model.to(torch.bfloat16)
    batches = torch.randint(0, vocabulary, (8, batch, length + 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(arguments.steps):
    tokens = batches[step % len(batches)]
    logits = model(tokens[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
