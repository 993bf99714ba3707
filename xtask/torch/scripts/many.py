"""Many small layers, whose parameters are updated one by one; it prints, evaluates and saves now and then."""
import argparse
import io

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--layers", type=int, default=60)
arguments = parser.parse_args()
torch.manual_seed(1)
model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(arguments.layers)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
inputs, targets = torch.randn(4, 8), torch.randn(4, 8)
for step in range(arguments.steps):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), flush=True)
    if step % 50 == 0:
        model.eval()
        with torch.no_grad():
            model(inputs)
        model.train()
        torch.save(model.state_dict(), io.BytesIO())
print("the script is done")
