"""A plain loop over a Darknet whose Mish is written out as x * tanh(softplus(x)). Fixed: functional.mish."""
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
small = arguments.small
stages, first, batch, side = ((64, 2), (128, 4), (256, 8), (512, 6)), 32, 64, 256
if small:
    stages, first, batch, side = ((16, 1), (32, 1)), 8, 4, 32
CLASSES = 1000
torch.backends.cudnn.benchmark = True


class Mish(nn.Module):
    def forward(self, x):
        if arguments.fixed:
            return functional.mish(x)
        return x * torch.tanh(functional.softplus(x))


def convolution(enter, leave, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(enter, leave, size, stride=stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(leave),
        Mish(),
    )


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.narrow, self.wide = convolution(width, width // 2, 1), convolution(width // 2, width, 3)

    def forward(self, x):
        return x + self.wide(self.narrow(x))


class Darknet(nn.Module):
    def __init__(self):
        super().__init__()
        parts, enter = [convolution(3, first, 3)], first
        for width, blocks in stages:
            parts.append(convolution(enter, width, 3, stride=2))
            parts += [Residual(width) for _ in range(blocks)]
            enter = width
        self.body = nn.Sequential(*parts)
        self.head = nn.Linear(enter, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
pictures = torch.randint(0, 256, (8, batch, 3, side, side), generator=generator, device=device, dtype=torch.uint8)
classes = torch.randint(0, CLASSES, (8, batch), generator=generator, device=device)
model = Darknet().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=has_gpu
)
for step in range(1, arguments.steps + 1):
    picture = (pictures[step % 8].float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(picture)
    loss = functional.cross_entropy(scores.float(), classes[step % 8], label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
