"""torchvision's ResNet-18 whose images are cropped, turned and tinted one by one on the GPU. Fixed: the whole batch at once."""
import argparse

import torch
import torchvision
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=220)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
batch, side, pool = (4, 32, 16) if arguments.small else (96, 224, 512)


def drawn():
    """A crop (as an affine map), a brightness and a contrast for every image, drawn on the host."""
    scale = 0.5 + 0.5 * torch.rand(batch)
    flip = torch.where(torch.rand(batch) < 0.5, -1.0, 1.0)
    shift = (1.0 - scale)[:, None] * (2.0 * torch.rand(batch, 2) - 1.0)
    zero = torch.zeros(batch)
    maps = torch.stack([
        torch.stack([scale * flip, zero, shift[:, 0]], dim=1),
        torch.stack([zero, scale, shift[:, 1]], dim=1),
    ], dim=1)
    tints = 0.8 + 0.4 * torch.rand(batch, 2)
    if device == "cuda":
        maps, tints = maps.pin_memory(), tints.pin_memory()
    return maps.to(device, non_blocking=True), tints.to(device, non_blocking=True)


def augmented(images, maps, tints):
    """(b, 3, side, side) bytes to floats; `maps` is (b, 2, 3), `tints` is (b, 2)."""
    images = images.float() / 255.0
    grid = functional.affine_grid(maps, images.shape, align_corners=False)
    images = functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    brightness, contrast = tints[:, 0].view(-1, 1, 1, 1), tints[:, 1].view(-1, 1, 1, 1)
    images = (images * brightness).clamp(0.0, 1.0)
    grey = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (grey + contrast * (images - grey)).clamp(0.0, 1.0)
    return (images - 0.45) / 0.225


def augmented_singly(images, maps, tints):
    return torch.cat([augmented(images[n : n + 1], maps[n : n + 1], tints[n : n + 1]) for n in range(len(images))])


torch.backends.cudnn.benchmark = True
torch.manual_seed(0)
model = torchvision.models.resnet18().to(device, memory_format=torch.channels_last)
images = torch.randint(0, 256, (pool, 3, side, side), dtype=torch.uint8).to(device)
labels = torch.randint(0, 1000, (pool,)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=device == "cuda")
augment = augmented if arguments.fixed else augmented_singly
for step in range(arguments.steps):
    first = step * batch % (pool - batch + 1)
    inputs = augment(images[first : first + batch], *drawn()).contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16):
        loss = functional.cross_entropy(model(inputs), labels[first : first + batch])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
