"""An ensemble of world models for planning, trained member by member. Fixed: all members in batched products."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
members, width, batch, stored = (3, 16, 8, 256) if arguments.small else (24, 512, 4096, 200_000)
STATE, ACTION, HIDDEN = 48, 16, 5
torch.set_float32_matmul_precision("high")


def member():
    sides = [STATE + ACTION] + HIDDEN * [width] + [2 * STATE]
    layers = []
    for enter, leave in zip(sides, sides[1:]):
        layers += [nn.Linear(enter, leave), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


class Stacked(nn.Module):
    """The same members with their weights side by side."""

    def __init__(self, each):
        super().__init__()
        linears = list(zip(*([layer for layer in one if isinstance(layer, nn.Linear)] for one in each)))
        self.weights = nn.ParameterList(torch.stack([one.weight.detach().t() for one in row]) for row in linears)
        self.biases = nn.ParameterList(torch.stack([one.bias.detach()[None] for one in row]) for row in linears)

    def forward(self, x):
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias, x if depth == 0 else functional.silu(x), weight)
        return x


def surprise(outputs, change):
    """How unlikely the change of state is under the predicted normal distribution, a sum over the members."""
    mean, spread = outputs.chunk(2, dim=-1)
    spread = spread.clamp(-8.0, 4.0)
    return ((mean - change).square() * torch.exp(-spread) + spread).mean((-2, -1)).sum()


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
moves = torch.randn(stored, STATE + ACTION, generator=generator, device=device)
changes = 0.1 * torch.randn(stored, STATE, generator=generator, device=device)
model = nn.ModuleList(member() for _ in range(members))
if arguments.fixed:
    model = Stacked(model)
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    # Every member draws its own transitions from the replay buffer.
    chosen = torch.randint(0, stored, (members, batch), generator=generator, device=device)
    if arguments.fixed:
        loss = surprise(model(moves[chosen]), changes[chosen])
    else:
        loss = sum(surprise(one(moves[drawn]), changes[drawn]) for one, drawn in zip(model, chosen))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
