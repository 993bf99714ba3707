"""A plain loop over a two-task encoder that runs a backward per loss through the shared trunk. Fixed: one, of their sum."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
trunk, own, width, heads, batch, length, features = (2, 1, 64, 4, 2, 32, 16) if arguments.small else (6, 3, 768, 12, 32, 512, 128)
KINDS = 32


def encoder(layers):
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class TwoTasks(nn.Module):
    """Names the activity at each reading of a sensor and forecasts the next reading."""

    def __init__(self):
        super().__init__()
        self.first, self.places = nn.Linear(features, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.trunk = encoder(trunk)
        self.naming = nn.Sequential(encoder(own), nn.Linear(width, KINDS))
        self.forecast = nn.Sequential(encoder(own), nn.Linear(width, features))

    def forward(self, readings):
        shared = self.trunk(self.first(readings) + self.places)
        return self.naming(shared), self.forecast(shared)


torch.manual_seed(0)
with torch.device(device):
    model = TwoTasks().to(torch.bfloat16)
    readings = torch.randn(4, batch, length + 1, features, dtype=torch.bfloat16)
    labels = torch.randint(0, KINDS, (4, batch, length))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(arguments.steps):
    row = readings[step % 4]
    named, forecast = model(row[:, :-1])
    loss_naming = functional.cross_entropy(named.flatten(0, 1), labels[step % 4].flatten())
    loss_forecast = functional.mse_loss(forecast, row[:, 1:])
    if arguments.fixed:
        (loss_naming + loss_forecast).backward()
    else:
        loss_naming.backward(retain_graph=True)
        loss_forecast.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss_naming.item():.4f} {loss_forecast.item():.4f}")
