"""A model replayed from CUDA graphs whose optimizer goes from parameter to parameter. Fixed: fused=True."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, rows = (2, 64, 32) if arguments.small else (32, 1024, 2048)
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)]
model = nn.Sequential(*blocks).to(device)
way = {"fused": True} if arguments.fixed and has_gpu else {"foreach": arguments.fixed}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **way)
inputs, targets = torch.randn(rows, width, device=device), torch.randn(rows, width, device=device)
torch.set_float32_matmul_precision("high")
replayed = torch.cuda.make_graphed_callables(model, (inputs,)) if has_gpu else model
for _ in range(arguments.steps):
    loss = nn.functional.mse_loss(replayed(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
