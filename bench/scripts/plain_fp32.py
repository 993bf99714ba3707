"""A plain loop in single precision that leaves the tensor cores idle. Fixed: products in TF32."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
if arguments.fixed:
    torch.set_float32_matmul_precision("high")
width, rows = (128, 64) if arguments.small else (4096, 8192)
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(4)]
model = nn.Sequential(*blocks).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
inputs, targets = torch.randn(rows, width, device=device), torch.randn(rows, width, device=device)
for _ in range(arguments.steps):
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
