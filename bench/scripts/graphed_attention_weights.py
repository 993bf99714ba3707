"""A captured encoder whose nn.MultiheadAttention returns weights that nothing reads. Fixed: need_weights=False."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, batch, places, channels = (2, 64, 4, 4, 32, 16) if arguments.small else (8, 1024, 16, 16, 1024, 256)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm(x)
        attended, _ = self.attention(y, y, y, need_weights=not arguments.fixed)
        x = x + attended
        return x + self.feed(self.norm_after(x))


torch.manual_seed(0)
blocks = [Block() for _ in range(layers)]
model = nn.Sequential(nn.Linear(channels, width), *blocks, nn.LayerNorm(width), nn.Linear(width, channels))
model = model.to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
signals = torch.randn(4, batch, places, channels, device=device, dtype=torch.bfloat16)
targets = signals.roll(1, dims=2)
inputs, wanted = signals[0].clone(), targets[0].clone()


def forward_and_backward():
    loss = nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    return loss


if has_gpu:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            forward_and_backward()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = forward_and_backward()
else:
    print("no GPU: forward and backward run call by call instead of from a graph")
for step in range(arguments.steps):
    inputs.copy_(signals[step % 4])
    wanted.copy_(targets[step % 4])
    if has_gpu:
        # Every replay writes the gradients anew.
        graph.replay()
    else:
        optimizer.zero_grad(set_to_none=True)
        loss = forward_and_backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
