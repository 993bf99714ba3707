"""A plain loop over a molecule decoder whose Muon straightens its matrices one by one. Fixed: all of a shape in a batch."""
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
layers, width, heads, batch, length = (2, 64, 4, 4, 32) if arguments.small else (12, 768, 6, 32, 256)
SYMBOLS = 640


def straightened(matrix, rounds=5):
    """The nearest orthogonal matrix, roughly, by a quintic iteration; takes one matrix or a stack of them."""
    x = matrix.bfloat16()
    tall = x.size(-2) > x.size(-1)
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        square = x @ x.mT
        mixed = -4.7750 * square + 2.0315 * (square @ square)
        x = 3.4445 * x + mixed @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, matrices, lr=0.01, momentum=0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["average"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (self.step_together if arguments.fixed else self.step_singly)(group)

    def step_singly(self, group):
        momentum = group["momentum"]
        for p in group["params"]:
            average = self.state[p]["average"]
            average.lerp_(p.grad, 1 - momentum)
            update = straightened(p.grad.lerp(average, momentum))
            p.add_(update, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)

    def step_together(self, group):
        momentum = group["momentum"]
        by_shape = {}
        for p in group["params"]:
            by_shape.setdefault(p.shape, []).append(p)
        for (rows, columns), matrices in by_shape.items():
            gradients = [p.grad for p in matrices]
            averages = [self.state[p]["average"] for p in matrices]
            torch._foreach_lerp_(averages, gradients, 1 - momentum)
            updates = straightened(torch.stack(torch._foreach_lerp(gradients, averages, momentum)))
            scale = -group["lr"] * max(1, rows / columns) ** 0.5
            torch._foreach_add_(matrices, updates.float().unbind(0), alpha=scale)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        y = self.before(x)
        q, k, v = (side(y).view(*y.shape[:2], heads, -1).transpose(1, 2) for side in (self.q, self.k, self.v))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(functional.relu(self.up(self.between(x))).square())


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, SYMBOLS, bias=False)

    def forward(self, rows):
        x = self.symbols(rows) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Decoder().to(device)
molecules = torch.randint(0, SYMBOLS, (8, batch, length + 1)).to(device)
matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
chosen = {id(p) for p in matrices}
others = [p for p in model.parameters() if id(p) not in chosen]
muon = Muon(matrices)
adam = torch.optim.AdamW(others, lr=3e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    rows = molecules[step % 8]
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(rows[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    muon.step()
    adam.step()
    muon.zero_grad(set_to_none=True)
    adam.zero_grad(set_to_none=True)
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
