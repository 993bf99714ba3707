"""A recurrent model with normalised cells, launched cell by cell from Python. Fixed: replayed from a CUDA graph."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, batch, length = (1, 32, 4, 8) if arguments.small else (2, 512, 128, 48)


class Cell(nn.Module):
    """No library has it: the sum of both products is normalised, and so is the state."""

    def __init__(self):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.norm, self.norm_state = nn.LayerNorm(4 * width), nn.LayerNorm(width)

    def forward(self, x, hidden, state):
        gates = self.norm(self.of_input(x) + self.of_state(hidden))
        enter, keep, leave, new = gates.chunk(4, dim=-1)
        state = torch.sigmoid(keep) * state + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(self.norm_state(state)), state


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList(Cell() for _ in range(layers))
        self.back = nn.Linear(width, width)

    def forward(self, inputs):
        outputs = inputs.unbind(1)
        for cell in self.cells:
            hidden = state = torch.zeros_like(outputs[0])
            sequence = []
            for x in outputs:
                hidden, state = cell(x, hidden, state)
                sequence.append(hidden)
            outputs = sequence
        return self.back(torch.stack(outputs, dim=1))


torch.manual_seed(0)
model = Recurrent().to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=has_gpu)
series = torch.randn(4, batch, length + 1, width, device=device, dtype=torch.bfloat16)
forward = model
if arguments.fixed and has_gpu:
    forward = torch.cuda.make_graphed_callables(model, (series[0, :, :-1].contiguous(),))
elif arguments.fixed:
    print("no GPU: cells run call by call instead of from a graph")
for step in range(arguments.steps):
    row = series[step % 4]
    loss = nn.functional.mse_loss(forward(row[:, :-1].contiguous()), row[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
