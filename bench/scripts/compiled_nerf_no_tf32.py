"""A compiled radiance field in float32 at the default precision. Fixed: set_float32_matmul_precision("high")."""
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
small = arguments.small
width, rays, samples = (32, 16, 8) if small else (512, 2048, 64)
PLACE_WAVES, LOOK_WAVES, NEAR, FAR = 10, 4, 2.0, 6.0
if arguments.fixed:
    torch.set_float32_matmul_precision("high")


def waves(x, count):
    angles = x[..., None, :] * (2.0 ** torch.arange(count, device=x.device))[:, None]
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)


class Field(nn.Module):
    """Density and colour of points in space, seen from a direction."""

    def __init__(self):
        super().__init__()
        places = 6 * PLACE_WAVES
        self.first = nn.ModuleList(nn.Linear(width if n else places, width) for n in range(5))
        self.second = nn.ModuleList(nn.Linear(width if n else width + places, width) for n in range(3))
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.look, self.colour = nn.Linear(width + 6 * LOOK_WAVES, width // 2), nn.Linear(width // 2, 3)

    def forward(self, points, looks):
        places = waves(points, PLACE_WAVES)
        x = places
        for layer in self.first:
            x = functional.relu(layer(x))
        x = torch.cat([x, places], -1)
        for layer in self.second:
            x = functional.relu(layer(x))
        density = functional.softplus(self.density(x)).squeeze(-1)
        looks = waves(looks, LOOK_WAVES)[:, None].expand(-1, points.shape[1], -1)
        x = functional.relu(self.look(torch.cat([self.feature(x), looks], -1)))
        return density, self.colour(x).sigmoid()


class Renderer(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = Field()

    def forward(self, origins, looks, jitter):
        gap = (FAR - NEAR) / samples
        depths = NEAR + gap * (torch.arange(samples, device=origins.device) + jitter)
        points = origins[:, None] + depths[..., None] * looks[:, None]
        density, colour = self.field(points, looks)
        through = density * gap
        reached = torch.exp(through - through.cumsum(1))
        weights = reached * (1 - torch.exp(-through))
        return (weights[..., None] * colour).sum(1)


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
origins = torch.randn(64, rays, 3, generator=generator, device=device)
looks = functional.normalize(torch.randn(64, rays, 3, generator=generator, device=device), dim=-1)
colours = torch.rand(64, rays, 3, generator=generator, device=device)
renderer = Renderer().to(device)
render = torch.compile(renderer) if has_gpu else renderer
optimizer = torch.optim.Adam(renderer.parameters(), lr=5e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    chosen = step % 64
    jitter = torch.rand(rays, samples, generator=generator, device=device)
    loss = functional.mse_loss(render(origins[chosen], looks[chosen], jitter), colours[chosen])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.5f}")
