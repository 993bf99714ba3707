"""A plain loop over a video transformer whose frames become floats on the host. Fixed: copied as bytes, scaled on the device."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=75)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
layers, width, heads, batch, frames, side = (2, 64, 4, 2, 4, 32) if arguments.small else (12, 768, 12, 16, 16, 224)
places = (frames // 2) * (side // 16) ** 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(self.before(x)).view(*x.shape[:2], 3, heads, -1).unbind(2))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed(self.between(x))


class VideoTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tubelets = nn.Linear(2 * 3 * 16 * 16, width)
        self.places = nn.Parameter(0.02 * torch.randn(places, width))
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 400)

    def forward(self, clips):
        # (b, frames, 3, side, side) to (b, places, 2 * 3 * 16 * 16)
        cut = clips.view(batch, frames // 2, 2, 3, side // 16, 16, side // 16, 16)
        cut = cut.permute(0, 1, 4, 6, 2, 3, 5, 7).reshape(batch, places, -1)
        return self.head(self.norm(self.blocks(self.tubelets(cut) + self.places)).mean(1))


mean = torch.tensor([0.43216, 0.394666, 0.37645]).view(3, 1, 1)
spread = torch.tensor([0.22803, 0.22145, 0.216989]).view(3, 1, 1)
mean_there, spread_there = mean.to(device), spread.to(device)


def scaled_on_host(clips):
    return ((clips.float() / 255.0 - mean) / spread).to(device)


def scaled_on_device(clips):
    return (clips.to(device, non_blocking=True).float() / 255.0 - mean_there) / spread_there


torch.manual_seed(0)
with torch.device(device):
    model = VideoTransformer().to(torch.bfloat16)
    labels = torch.randint(0, 400, (4, batch))
clips = [torch.randint(0, 256, (batch, frames, 3, side, side), dtype=torch.uint8) for _ in range(4)]
clips = [clip.pin_memory() for clip in clips] if has_gpu else clips
scaled = scaled_on_device if arguments.fixed else scaled_on_host
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
for step in range(arguments.steps):
    inputs = scaled(clips[step % 4]).to(torch.bfloat16)
    loss = functional.cross_entropy(model(inputs), labels[step % 4])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
