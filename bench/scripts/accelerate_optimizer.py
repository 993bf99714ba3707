"""Accelerate over a transformer whose optimizer goes from parameter to parameter. Fixed: fused=True."""
import argparse

import torch
from accelerate import Accelerator
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, batch, length = (2, 64, 4, 32) if arguments.small else (24, 1024, 8, 512)
accelerator = Accelerator(mixed_precision="bf16" if has_gpu else "no", cpu=not has_gpu)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(width, 16 if width > 64 else 4, 4 * width, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
way = {"fused": True} if arguments.fixed and has_gpu else {"foreach": arguments.fixed}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **way)
data = torch.utils.data.TensorDataset(torch.randn(32 * batch, length, width))
loader = torch.utils.data.DataLoader(data, batch_size=batch, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
step = 0
while step < arguments.steps:
    for (inputs,) in loader:
        loss = nn.functional.mse_loss(model(inputs), inputs)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == arguments.steps:
            break
