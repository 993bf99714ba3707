"""A physics-informed network that asks for u_t, u_x and u_y in three passes over it. Fixed: all three in one pass."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, points, known = (2, 32, 256, 64) if arguments.small else (6, 1024, 16384, 4096)
DIFFUSION, WIND_X, WIND_Y = 0.01, 1.0, 0.5
torch.set_float32_matmul_precision("high")


class Field(nn.Module):
    """The concentration at a time and a place."""

    def __init__(self):
        super().__init__()
        sizes = [3] + [width] * layers
        body = []
        for inputs, outputs in zip(sizes, sizes[1:]):
            body += [nn.Linear(inputs, outputs), nn.Tanh()]
        self.body = nn.Sequential(*body, nn.Linear(width, 1))
        for layer in self.body:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, t, x, y):
        return self.body(torch.cat([t, x, y], dim=1))


def derivative(of, by):
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]


def residual(field, t, x, y):
    """The rest of u_t + a u_x + b u_y = D (u_xx + u_yy)."""
    u = field(t, x, y)
    if arguments.fixed:
        u_t, u_x, u_y = torch.autograd.grad(u, (t, x, y), torch.ones_like(u), create_graph=True)
    else:
        u_t = derivative(u, t)
        u_x = derivative(u, x)
        u_y = derivative(u, y)
    u_xx = derivative(u_x, x)
    u_yy = derivative(u_y, y)
    return u_t + WIND_X * u_x + WIND_Y * u_y - DIFFUSION * (u_xx + u_yy)


def drawn(count):
    return (torch.rand(count, 1, device=device) for _ in range(3))


torch.manual_seed(0)
field = Field().to(device)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    t, x, y = (column.requires_grad_() for column in drawn(points))
    equation = residual(field, t, x, y).square().mean()
    _, x, y = drawn(known)
    start = torch.exp(-50 * ((x - 0.3) ** 2 + (y - 0.3) ** 2))
    initial = (field(torch.zeros_like(x), x, y) - start).square().mean()
    loss = equation + 10 * initial
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.5f} equation {equation.item():.5f}")
