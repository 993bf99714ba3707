"""A scene parser whose Dice loss spreads its labels into one-hot maps of 150 kinds. Fixed: gathered by label."""
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
batch, size, width, depth = (2, 64, 16, 1) if arguments.small else (8, 512, 192, 4)
KINDS, SMOOTH = 150, 1.0
torch.backends.cudnn.benchmark = True


class DiceLoss(nn.Module):
    def forward(self, logits, labels):
        probabilities = logits.softmax(dim=1)
        if arguments.fixed:
            flat = labels.flatten(1)
            true = probabilities.gather(1, labels.unsqueeze(1)).flatten(1)
            none = true.new_zeros(len(flat), KINDS)
            intersection = none.scatter_add(1, flat, true)
            total = probabilities.sum(dim=(2, 3)) + none.scatter_add(1, flat, torch.ones_like(true))
        else:
            targets = functional.one_hot(labels, num_classes=KINDS).permute(0, 3, 1, 2).float()
            intersection = (probabilities * targets).sum(dim=(2, 3))
            total = (probabilities + targets).sum(dim=(2, 3))
        dice = (2.0 * intersection + SMOOTH) / (total + SMOOTH)
        return 1.0 - dice.mean()


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return functional.relu(x + self.body(x))


class Parser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4, bias=False), nn.BatchNorm2d(width), nn.ReLU(True))
        self.fine = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 2, 2, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True))
        self.coarse = nn.Sequential(*(Residual(2 * width) for _ in range(depth)))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.classify = nn.Conv2d(width, KINDS, 1)

    def forward(self, images):
        fine = self.fine(self.stem(images))
        return self.classify(fine + self.up(self.coarse(self.down(fine))))


torch.manual_seed(0)
with torch.device(device):
    model = Parser().to(memory_format=torch.channels_last)
    scenes = torch.randint(0, 256, (4, batch, 3, size, size), dtype=torch.uint8)
    patches = torch.randint(0, KINDS, (4, batch, size // 8, size // 8))
annotations = patches.repeat_interleave(8, 2).repeat_interleave(8, 3)
dice_loss = DiceLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    images = (scenes[step % 4].float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
    labels = annotations[step % 4]
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(images)
    logits = functional.interpolate(scores.float().contiguous(), size=(size, size), mode="bilinear", align_corners=False)
    loss = functional.cross_entropy(logits, labels) + dice_loss(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f}")
