"""A plain loop over a U-Net in single precision whose reproducibility header turns TF32 off. Fixed: convolutions in TF32."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

# Copied from a reproducibility guide; the last line costs the tensor cores.
torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.allow_tf32 = arguments.fixed

device = "cuda" if torch.cuda.is_available() else "cpu"
width, levels, classes, batch, side = (8, 2, 4, 2, 32) if arguments.small else (64, 4, 4, 8, 256)


def twice(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.first = twice(3, width)
        self.down = nn.ModuleList(twice(a, b) for a, b in zip(widths, widths[1:]))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(twice(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for widen, up in zip(reversed(self.widen), reversed(self.up)):
            x = up(torch.cat([kept.pop(), widen(x)], dim=1))
        return self.head(x)


with torch.device(device):
    model = UNet()
    images = torch.randn(4, batch, 3, side, side)
    masks = torch.randint(0, classes, (4, batch, side, side))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
for step in range(arguments.steps):
    loss = functional.cross_entropy(model(images[step % 4]), masks[step % 4])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
