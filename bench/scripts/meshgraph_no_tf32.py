"""A mesh simulator in float32 at the default precision. Fixed: set_float32_matmul_precision("high")."""
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
rounds, width, side = (2, 16, 8) if arguments.small else (8, 128, 256)
FIELDS, SHAPE, BATCHES = 11, 3, 4
if arguments.fixed:
    torch.set_float32_matmul_precision("high")


def mlp(enter):
    inner = [nn.Linear(enter, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*inner, nn.LayerNorm(width))


class Round(nn.Module):
    """Edges hear their two nodes, then nodes hear the sum of their edges."""

    def __init__(self):
        super().__init__()
        self.edge, self.node = mlp(3 * width), mlp(2 * width)

    def forward(self, nodes, edges, source, target):
        heard = torch.cat([edges, nodes.index_select(0, source), nodes.index_select(0, target)], dim=1)
        edges = edges + self.edge(heard)
        gathered = torch.zeros_like(nodes).index_add_(0, target, edges)
        return nodes + self.node(torch.cat([nodes, gathered], dim=1)), edges


class Simulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter_nodes, self.enter_edges = mlp(FIELDS), mlp(SHAPE)
        self.rounds = nn.ModuleList(Round() for _ in range(rounds))
        self.leave = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, fields, shape, source, target):
        nodes, edges = self.enter_nodes(fields), self.enter_edges(shape)
        for one in self.rounds:
            nodes, edges = one(nodes, edges, source, target)
        return self.leave(nodes)


def mesh():
    """The triangles of a square grid: both directions of every edge, with its offset and length."""
    numbers = torch.arange(side * side).view(side, side)
    pairs = [(numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:]), (numbers[:-1, :-1], numbers[1:, 1:])]
    one = torch.cat([first.flatten() for first, _ in pairs])
    other = torch.cat([second.flatten() for _, second in pairs])
    source, target = torch.cat([one, other]), torch.cat([other, one])
    places = torch.stack([numbers.flatten() // side, numbers.flatten() % side], dim=1) / side
    offset = places[target] - places[source]
    shape = torch.cat([offset, offset.norm(dim=1, keepdim=True)], dim=1)
    return shape.to(device), source.to(device), target.to(device)


torch.manual_seed(0)
shape, source, target = mesh()
generator = torch.Generator(device).manual_seed(1)
fields = torch.randn(BATCHES, side * side, FIELDS, generator=generator, device=device)
changes = torch.randn(BATCHES, side * side, 2, generator=generator, device=device)
model = Simulator().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    loss = functional.mse_loss(model(fields[step % BATCHES], shape, source, target), changes[step % BATCHES])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
