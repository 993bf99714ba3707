"""A super-resolution net judged by torchvision's VGG-19, set to eval() but not frozen. Fixed: requires_grad_(False)."""
import argparse

import torch
import torchvision
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, side, width, blocks, depth = (1, 32, 16, 1, 9) if arguments.small else (32, 192, 64, 8, 36)
torch.backends.cudnn.benchmark = True


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.PReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return x + self.body(x)


class Generator(nn.Module):
    """Doubles the side of an image."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 9, padding=4), nn.PReLU())
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.after = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        self.doubled = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())
        self.last = nn.Conv2d(width, 3, 9, padding=4)

    def forward(self, x):
        x = self.first(x)
        return torch.tanh(self.last(self.doubled(x + self.after(self.blocks(x)))))


class FeatureExtractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(*list(torchvision.models.vgg19().features.children())[:depth])

    def forward(self, images):
        return self.features(images)


torch.manual_seed(0)
with torch.device(device):
    generator = Generator().to(memory_format=torch.channels_last)
    extractor = FeatureExtractor().to(memory_format=torch.channels_last)
extractor.eval()
if arguments.fixed:
    extractor.requires_grad_(False)
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, fused=has_gpu)
photographs = torch.randint(0, 256, (4, batch, 3, side, side), dtype=torch.uint8, device=device)
for step in range(1, arguments.steps + 1):
    high = (photographs[step % 4].float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
    low = functional.avg_pool2d(high, 2)
    optimizer.zero_grad()
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        made = generator(low)
        made_features = extractor(made)
        true_features = extractor(high)
    content = functional.l1_loss(made_features.float(), true_features.detach().float())
    loss = content + functional.l1_loss(made.float(), high)
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f} content {content.item():.6f}")
