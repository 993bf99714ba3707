"""A seismogram transformer with compiled blocks whose Lion goes from tensor to tensor. Fixed: torch._foreach calls."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
backend = "inductor" if has_gpu else "aot_eager"
layers, width, heads, batch, length = (2, 32, 4, 4, 16) if arguments.small else (40, 384, 6, 16, 1024)
CHANNELS, PATCH, PHASES, BATCHES = 3, 8, 3, 8


class Lion(torch.optim.Optimizer):
    """Moves every weight by the sign of its mean gradient."""

    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            lr, (first, second), decay = group["lr"], group["betas"], group["weight_decay"]
            weights = [p for p in group["params"] if p.grad is not None]
            for p in weights:
                if not self.state[p]:
                    self.state[p]["mean"] = torch.zeros_like(p)
            if arguments.fixed:
                gradients, means = [p.grad for p in weights], [self.state[p]["mean"] for p in weights]
                torch._foreach_mul_(weights, 1 - lr * decay)
                update = torch._foreach_mul(means, first)
                torch._foreach_add_(update, gradients, alpha=1 - first)
                torch._foreach_sign_(update)
                torch._foreach_add_(weights, update, alpha=-lr)
                torch._foreach_mul_(means, second)
                torch._foreach_add_(means, gradients, alpha=1 - second)
                continue
            for p in weights:
                mean = self.state[p]["mean"]
                p.mul_(1 - lr * decay)
                update = mean.clone().mul_(first).add(p.grad, alpha=1 - first).sign_()
                p.add_(update, alpha=-lr)
                mean.mul_(second).add_(p.grad, alpha=1 - second)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.scale_after = nn.Parameter(0.1 * torch.ones(width)), nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.scale * self.out(mixed)
        return x + self.scale_after * self.down(functional.gelu(self.up(self.between(x))))


class Picker(nn.Module):
    """Says of every patch of a seismogram whether it holds noise, a P or an S wave."""

    def __init__(self):
        super().__init__()
        self.enter, self.places = nn.Linear(CHANNELS * PATCH, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, PHASES)

    def forward(self, signals):
        x = self.enter(signals) + self.places
        for block in self.blocks:
            x = block(x)
        return self.leave(self.norm(x))


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
signals = torch.randn(BATCHES, batch, length, CHANNELS * PATCH, generator=generator, device=device)
phases = torch.randint(0, PHASES, (BATCHES, batch, length), generator=generator, device=device)
model = Picker().to(device)
for block in model.blocks:
    block.compile(backend=backend)
optimizer = Lion(model.parameters(), lr=1e-5)
for step in range(1, arguments.steps + 1):
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(signals[step % BATCHES])
    loss = functional.cross_entropy(scores.float().flatten(0, 1), phases[step % BATCHES].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
