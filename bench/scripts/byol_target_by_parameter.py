"""BYOL over a residual net of 152 layers whose target is averaged parameter by parameter. Fixed: torch._foreach_lerp_."""
import argparse
import copy

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
depths, batch, side, base = ((1, 1, 1, 1), 4, 32, 8) if arguments.small else ((3, 8, 36, 3), 80, 96, 64)
RATE, SIZE, BATCHES = 0.99, 256, 4
torch.backends.cudnn.benchmark = True


def joined(before, after, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(after))


class Bottleneck(nn.Module):
    def __init__(self, before, inner, stride):
        super().__init__()
        self.first, self.second, self.third = joined(before, inner, 1), joined(inner, inner, 3, stride), joined(inner, 4 * inner, 1)
        self.skip = joined(before, 4 * inner, 1, stride) if before != 4 * inner or stride > 1 else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.first(x), inplace=True)
        y = functional.relu(self.second(y), inplace=True)
        return functional.relu(self.third(y) + self.skip(x), inplace=True)


def perceptron(before):
    inner = 4 * SIZE
    return nn.Sequential(nn.Linear(before, inner), nn.BatchNorm1d(inner), nn.ReLU(inplace=True), nn.Linear(inner, SIZE))


def encoder():
    parts, before = [joined(3, base, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], base
    for level, depth in enumerate(depths):
        inner = base * 2**level
        for index in range(depth):
            parts.append(Bottleneck(before, inner, 2 if level and not index else 1))
            before = 4 * inner
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), perceptron(before))


torch.manual_seed(0)
with torch.device(device):
    online, predictor = encoder().to(memory_format=torch.channels_last), perceptron(SIZE)
target = copy.deepcopy(online).requires_grad_(False)
news, olds = list(online.parameters()), list(target.parameters())
pictures = torch.randint(0, 256, (BATCHES, batch, 3, side, side), dtype=torch.uint8).to(device)
optimizer = torch.optim.SGD([*news, *predictor.parameters()], lr=0.03, momentum=0.9, weight_decay=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    plain = pictures[step % BATCHES].float().div_(127.5).sub_(1.0)
    both = torch.cat([plain + 0.1 * torch.randn_like(plain), plain.flip(3) + 0.1 * torch.randn_like(plain)])
    both = both.contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        guessed = predictor(online(both))
        with torch.no_grad():
            wanted = target(both)
    loss = 2 - 2 * functional.cosine_similarity(guessed.float(), wanted.float().roll(batch, 0)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if arguments.fixed:
        with torch.no_grad():
            torch._foreach_lerp_(olds, news, 1 - RATE)
    else:
        for old, new in zip(target.parameters(), online.parameters()):
            old.data = old.data * RATE + (1 - RATE) * new.data
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
