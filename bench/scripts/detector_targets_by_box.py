"""A CenterNet over torchvision's ResNet-18 that draws its target maps box by box. Fixed: all boxes of a batch in one go."""
import argparse
import warnings

import torch
import torchvision
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore", message="index_reduce")
has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, side, objects, inner = (2, 64, 3, 16) if arguments.small else (16, 512, 8, 256)
KINDS, STRIDE = 20, 4
cells = side // STRIDE
torch.backends.cudnn.benchmark = True


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(*list(torchvision.models.resnet18().children())[:-2])
        widened = []
        for inputs in (512, inner, inner):
            widened += [nn.ConvTranspose2d(inputs, inner, 4, 2, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(True)]
        self.widened = nn.Sequential(*widened)
        self.heat, self.extent = self.head(KINDS), self.head(2)

    def head(self, outputs):
        return nn.Sequential(nn.Conv2d(inner, 64, 3, padding=1), nn.ReLU(True), nn.Conv2d(64, outputs, 1))

    def forward(self, images):
        x = self.widened(self.trunk(images))
        return self.heat(x), self.extent(x)


across = torch.arange(cells, device=device, dtype=torch.float32)
down = across[:, None]


def targets_by_box(boxes, kinds):
    heat = torch.zeros(batch, KINDS, cells, cells, device=device)
    extent = torch.zeros(batch, 2, cells, cells, device=device)
    known = torch.zeros(batch, 1, cells, cells, device=device)
    for image in range(batch):
        for box, kind in zip(boxes[image], kinds[image]):
            left, top, right, bottom = box / STRIDE
            column, row = int((left + right) / 2), int((top + bottom) / 2)
            spread = max(1.0, float(torch.minimum(right - left, bottom - top) * 0.3)) / 3
            hill = torch.exp(-((across - column) ** 2 + (down - row) ** 2) / (2 * spread**2))
            here = heat[image, int(kind)]
            here.copy_(torch.maximum(here, hill))
            extent[image, :, row, column] = torch.stack([right - left, bottom - top])
            known[image, 0, row, column] = 1.0
    return heat, extent, known


def targets_together(boxes, kinds):
    left, top, right, bottom = (boxes / STRIDE).unbind(-1)
    columns, rows = ((left + right) / 2).long(), ((top + bottom) / 2).long()
    spread = (torch.minimum(right - left, bottom - top) * 0.3).clamp(min=1.0)[..., None, None] / 3
    hills = torch.exp(-((across - columns[..., None, None]) ** 2 + (down - rows[..., None, None]) ** 2) / (2 * spread**2))
    images = torch.arange(batch, device=device)[:, None]
    heat = torch.zeros(batch * KINDS, cells, cells, device=device)
    heat.index_reduce_(0, (images * KINDS + kinds).flatten(), hills.flatten(0, 1), "amax")
    extent = torch.zeros(batch, cells, cells, 2, device=device)
    extent[images, rows, columns] = torch.stack([right - left, bottom - top], dim=-1)
    known = torch.zeros(batch, 1, cells, cells, device=device)
    known[images, 0, rows, columns] = 1.0
    return heat.view(batch, KINDS, cells, cells), extent.permute(0, 3, 1, 2), known


def loss_of(heat_logits, extents, heat, extent, known):
    found = heat_logits.float().sigmoid().clamp(1e-4, 1 - 1e-4)
    peaks = heat.eq(1.0)
    hit = torch.log(found) * (1 - found) ** 2 * peaks
    miss = torch.log(1 - found) * found**2 * (1 - heat) ** 4 * ~peaks
    count = known.sum()
    return -(hit.sum() + miss.sum()) / count + 0.1 * ((extents.float() - extent).abs() * known).sum() / count


torch.manual_seed(0)
model = Detector().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=has_gpu)
photographs = torch.randint(0, 256, (4, batch, 3, side, side), dtype=torch.uint8, device=device)
middles = (torch.rand(4, batch, objects, 2, device=device) * 0.8 + 0.1) * side
halves = (torch.rand(4, batch, objects, 2, device=device) * 0.08 + 0.02) * side
annotated = torch.cat([middles - halves, middles + halves], dim=-1)
named = torch.randint(0, KINDS, (4, batch, objects), device=device)
targets_of = targets_together if arguments.fixed else targets_by_box
for step in range(arguments.steps):
    inputs = (photographs[step % 4].float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
    targets = targets_of(annotated[step % 4], named[step % 4])
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        heat_logits, extents = model(inputs)
    loss = loss_of(heat_logits, extents, *targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.4f}")
