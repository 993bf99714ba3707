"""A compiled model whose loop reads metrics back one by one at every step. Fixed: read together every 50 steps."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, rows = (2, 64, 32) if arguments.small else (24, 1024, 32768)
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)]
model = nn.Sequential(*blocks).to(device, torch.bfloat16)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
inputs = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
targets = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
history = []
for step in range(arguments.steps):
    outputs = compiled(inputs)
    loss = nn.functional.mse_loss(outputs, targets)
    loss.backward()
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    if arguments.fixed:
        norms = torch._foreach_norm([weight.grad for weight in weights])
        if step % 50 == 0:
            history.append((loss.item(), torch.stack(norms).tolist()))
    else:
        history.append((loss.item(), [weight.grad.norm().item() for weight in weights]))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
