"""A RetinaNet on torchvision's ResNet-50 pyramid whose focal loss is a chain of large maps. Fixed: the loss compiled."""
import argparse
import warnings

import torch
from torch import nn
from torch.nn import functional
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, size, name, KINDS, ANCHORS = (2, 128, "resnet18", 8, 2) if arguments.small else (16, 512, "resnet50", 320, 6)
BACKGROUND, ALPHA = -1, 0.25
torch.backends.cudnn.benchmark = True


class Tower(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.stages = nn.Sequential(
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True)
        )
        self.last = nn.Conv2d(256, ANCHORS * outputs, 3, padding=1)
        nn.init.normal_(self.last.weight, std=0.01)
        self.outputs = outputs

    def forward(self, maps):
        rows = [self.last(self.stages(x)).permute(0, 2, 3, 1).reshape(len(x), -1, self.outputs) for x in maps]
        return torch.cat(rows, dim=1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = resnet_fpn_backbone(
            backbone_name=name, weights=None, norm_layer=nn.BatchNorm2d, trainable_layers=5, returned_layers=[2, 3, 4]
        )
        self.kinds, self.boxes = Tower(KINDS), Tower(4)
        # The start that the paper asks for: every anchor a hundredth likely.
        nn.init.constant_(self.kinds.last.bias, -4.6)

    def forward(self, images):
        maps = list(self.backbone(images).values())
        return self.kinds(maps), self.boxes(maps)


def focal(scores, labels, every):
    scores = scores.float()
    wanted = (labels[..., None] == every).float()
    chance = scores.sigmoid()
    entropy = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    right = chance * wanted + (1 - chance) * (1 - wanted)
    weight = ALPHA * wanted + (1 - ALPHA) * (1 - wanted)
    return (weight * (1 - right) ** 2 * entropy).sum()


if arguments.fixed:
    focal = torch.compile(focal, backend="inductor" if has_gpu else "aot_eager")
torch.manual_seed(0)
model = Detector().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=has_gpu)
anchors = ANCHORS * sum((size // stride) ** 2 for stride in (8, 16, 32, 64))
every = torch.arange(KINDS, device=device)
images = torch.randint(0, 256, (4, batch, 3, size, size), dtype=torch.uint8).to(device)
taken = torch.rand(4, batch, anchors) < 0.01
labels = torch.where(taken, torch.randint(0, KINDS, taken.shape), BACKGROUND).to(device)
offsets = 0.1 * torch.randn(4, batch, anchors, 4).to(device)
for step in range(1, arguments.steps + 1):
    pick = step % 4
    inputs = (images[pick].float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores, boxes = model(inputs)
    found = labels[pick] != BACKGROUND
    count = found.sum()
    apart = functional.smooth_l1_loss(boxes.float(), offsets[pick], reduction="none").sum(-1)
    loss = (focal(scores, labels[pick], every) + (apart * found).sum()) / count
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
