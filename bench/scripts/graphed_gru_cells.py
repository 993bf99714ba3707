"""A captured sensor model that steps its GRU cells through time in Python. Fixed: nn.GRU, one call over all the steps."""
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
width, blocks, batch, moments, channels = (32, 2, 4, 12, 6) if arguments.small else (1024, 8, 64, 192, 48)


class Steps(nn.Module):
    """One recurrent layer, a cell called at every moment."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x):
        state, states = torch.zeros_like(x[:, 0]), []
        for moment in x.unbind(1):
            state = self.cell(moment, state)
            states.append(state)
        return torch.stack(states, dim=1)


class Whole(nn.Module):
    """The same layer as one call of the library."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


torch.manual_seed(0)
Layer = Whole if arguments.fixed else Steps
model = nn.Sequential(
    nn.Linear(channels, width),
    *(Feed() for _ in range(blocks // 2)),
    Layer(),
    Layer(),
    *(Feed() for _ in range(blocks // 2)),
    nn.LayerNorm(width),
    nn.Linear(width, channels),
)
model = model.to(device, torch.bfloat16 if has_gpu else torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=has_gpu)
readings = torch.randn(4, batch, moments + 1, channels).cumsum(2).mul(0.1).to(device, next(model.parameters()).dtype)
inputs, wanted = readings[0, :, :-1].clone(), readings[0, :, 1:].clone()


def forward_backward():
    loss = functional.smooth_l1_loss(model(inputs), wanted)
    loss.backward()
    return loss.detach()


graph = None
if has_gpu:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            forward_backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = forward_backward()
else:
    print("no GPU: forward and backward run call by call instead of from a graph")
for step in range(1, arguments.steps + 1):
    pick = readings[step % 4]
    inputs.copy_(pick[:, :-1])
    wanted.copy_(pick[:, 1:])
    if graph is None:
        optimizer.zero_grad(set_to_none=True)
        loss = forward_backward()
    else:
        # Every replay writes the gradients anew.
        graph.replay()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
