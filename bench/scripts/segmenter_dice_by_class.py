"""A U-Net over slices with 104 organs whose Dice loss goes from class to class in Python. Fixed: all classes at once."""
import argparse

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
batch, side, base, organs = (2, 32, 8, 8) if arguments.small else (8, 256, 64, 104)
LEVELS, SMOOTH, BATCHES = 4, 1e-5, 4
torch.backends.cudnn.benchmark = True


def twice(before, after):
    parts = []
    for entering in (before, after):
        parts += [nn.Conv2d(entering, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [base * 2**level for level in range(LEVELS)]
        self.down = nn.ModuleList(twice(before, after) for before, after in zip([1, *sizes], sizes))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in sizes[-2::-1])
        self.up = nn.ModuleList(twice(2 * size, size) for size in sizes[-2::-1])
        self.leave = nn.Conv2d(base, organs, 1)

    def forward(self, x):
        kept = []
        for level, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for rise, up, skip in zip(self.rise, self.up, kept[-2::-1]):
            x = up(torch.cat([rise(x), skip], dim=1))
        return self.leave(x)


def dice_loss(shares, labels):
    if arguments.fixed:
        truth = (labels[:, None] == torch.arange(organs, device=device)[:, None, None]).float()
        common, sizes = (shares * truth).sum((0, 2, 3)), (shares * shares).sum((0, 2, 3)) + (truth * truth).sum((0, 2, 3))
        return (1 - (2 * common + SMOOTH) / (sizes + SMOOTH)).mean()
    loss = 0.0
    for organ, share in enumerate(shares.unbind(1)):
        truth = (labels == organ).float()
        common = torch.sum(share * truth)
        sizes = torch.sum(share * share) + torch.sum(truth * truth)
        loss += 1 - (2 * common + SMOOTH) / (sizes + SMOOTH)
    return loss / organs


torch.manual_seed(0)
model = Segmenter().to(device, memory_format=torch.channels_last)
pictures = torch.randn(BATCHES, batch, 1, side, side).to(device)
labels = torch.randint(0, organs, (BATCHES, batch, side, side)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    picture, label = pictures[step % BATCHES].contiguous(memory_format=torch.channels_last), labels[step % BATCHES]
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores = model(picture)
    scores = scores.float().contiguous()
    loss = 0.5 * functional.cross_entropy(scores, label) + 0.5 * dice_loss(scores.softmax(dim=1), label)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.5f}")
