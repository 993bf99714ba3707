"""A mixer replayed from a CUDA graph, fed by copies from pageable memory. Fixed: batches pinned, copies not waited for."""
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
layers, width, batch, size = (2, 64, 4, 32) if arguments.small else (8, 512, 256, 224)
places = (size // 16) ** 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_places = nn.Sequential(nn.Linear(places, 256), nn.GELU(), nn.Linear(256, places))
        self.over_width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.over_places(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_width(self.norm_after(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images):
        x = self.patches(images.to(torch.bfloat16)).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


torch.manual_seed(0)
model = Mixer().to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
batches = [(torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))) for _ in range(4)]
if arguments.fixed and has_gpu:
    batches = [(images.pin_memory(), labels.pin_memory()) for images, labels in batches]
images = torch.zeros(batch, 3, size, size, device=device)
labels = torch.zeros(batch, dtype=torch.long, device=device)


def forward_and_backward():
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()


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
        forward_and_backward()
else:
    print("no GPU: forward and backward run call by call instead of from a graph")
for step in range(arguments.steps):
    next_images, next_labels = batches[step % 4]
    images.copy_(next_images, non_blocking=arguments.fixed)
    labels.copy_(next_labels, non_blocking=arguments.fixed)
    if has_gpu:
        # Every replay writes the gradients anew.
        graph.replay()
    else:
        optimizer.zero_grad(set_to_none=True)
        forward_and_backward()
    optimizer.step()
