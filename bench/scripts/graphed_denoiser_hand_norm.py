"""A captured scan denoiser whose channel norm is written out from means and powers. Fixed: functional.layer_norm."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
blocks, width, batch, side = (2, 16, 2, 16) if arguments.small else (16, 128, 16, 128)
SLICES, NOISE = 8, 0.2
torch.backends.cudnn.benchmark = True


class ChannelNorm(nn.Module):
    """Normalises the channels of each pixel."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        if arguments.fixed:
            last = x.permute(0, 2, 3, 1)
            return functional.layer_norm(last, (width,), self.weight, self.bias, self.eps).permute(0, 3, 1, 2)
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(spread + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = ChannelNorm()
        self.near, self.mix = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        return x + self.mix(functional.gelu(self.near(self.norm(x))))


class Denoiser(nn.Module):
    """Guesses the noise of a slice of a scan."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)
        self.body = nn.Sequential(*(Block() for _ in range(blocks)))

    def forward(self, x):
        # A map of one channel has either layout, and the first convolution may choose the other.
        x = self.enter(x).contiguous(memory_format=torch.channels_last)
        return self.leave(self.body(x))


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
scans = torch.rand(SLICES, batch, 1, side, side, generator=generator, device=device)
model = Denoiser().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=has_gpu)
noise = torch.zeros(batch, 1, side, side, device=device)
noisy = torch.zeros(batch, 1, side, side, device=device)


def load(step):
    noise.normal_(std=NOISE, generator=generator)
    torch.add(scans[step % SLICES], noise, out=noisy)


def forward_backward():
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu, cache_enabled=False):
        guess = model(noisy)
    loss = functional.l1_loss(guess.float(), noise)
    loss.backward()
    return loss


graph = None
if has_gpu:
    load(0)
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            forward_backward()
    torch.cuda.current_stream().wait_stream(side_stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = forward_backward()

for step in range(1, arguments.steps + 1):
    load(step)
    if graph is not None:
        graph.replay()
    else:
        optimizer.zero_grad(set_to_none=True)
        loss = forward_backward()
    optimizer.step()
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.5f}")
