"""A plain loop over a small transformer whose kernels are shorter than their launches. Fixed: compiled and replayed."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, batch, length = (2, 64, 4, 32) if arguments.small else (12, 512, 8, 128)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
inputs = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
targets = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)


def loss_of(inputs, targets):
    return nn.functional.mse_loss(model(inputs), targets)


if arguments.fixed:
    loss_of = torch.compile(loss_of, mode="reduce-overhead" if device == "cuda" else "default")
for _ in range(arguments.steps):
    loss = loss_of(inputs, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
