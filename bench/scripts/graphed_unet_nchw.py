"""A U-Net in bfloat16 replayed from a CUDA graph with its pictures laid out as NCHW. Fixed: channels_last."""
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
widths, batch, side = ((8, 16, 32), 2, 32) if arguments.small else ((64, 128, 256, 512), 32, 256)
CLASSES = 4
layout = torch.channels_last if arguments.fixed else torch.contiguous_format
torch.backends.cudnn.benchmark = True


def twice(enter, leave):
    return nn.Sequential(
        nn.Conv2d(enter, leave, 3, padding=1, bias=False),
        nn.BatchNorm2d(leave),
        nn.ReLU(inplace=True),
        nn.Conv2d(leave, leave, 3, padding=1, bias=False),
        nn.BatchNorm2d(leave),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.enter = twice(3, widths[0])
        self.down = nn.ModuleList(twice(above, below) for above, below in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(below, above, 2, stride=2) for above, below in reversed(pairs))
        self.join = nn.ModuleList(twice(2 * above, above) for above, _ in reversed(pairs))
        self.leave = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, x):
        kept = [self.enter(x)]
        for block in self.down:
            kept.append(block(functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.leave(x)


torch.manual_seed(0)
generator = torch.Generator(device).manual_seed(1)
pictures = torch.randint(0, 256, (8, batch, 3, side, side), generator=generator, device=device, dtype=torch.uint8)
classes = torch.randint(0, CLASSES, (8, batch, side, side), generator=generator, device=device)
model = UNet().to(device, memory_format=layout)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=has_gpu)
picture = torch.zeros(batch, 3, side, side, device=device).contiguous(memory_format=layout)
truth = torch.zeros(batch, side, side, dtype=torch.long, device=device)


def load(step):
    picture.copy_(pictures[step % 8])
    picture.div_(127.5).sub_(1)
    truth.copy_(classes[step % 8])


def forward_backward():
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu, cache_enabled=False):
        scores = model(picture)
    loss = functional.cross_entropy(scores.float(), truth)
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
        print(f"step {step} loss {loss.item():.4f}")
