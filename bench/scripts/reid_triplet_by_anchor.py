"""torchvision's ResNet-50 for re-identification whose hardest pairs are sought anchor by anchor. Fixed: all rows at once."""
import argparse

import torch
import torchvision
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
persons, views, high, wide, known = (4, 2, 64, 32, 16) if arguments.small else (16, 4, 256, 128, 751)
MARGIN = 0.3
torch.backends.cudnn.benchmark = True


class TripletLoss(nn.Module):
    """Batch-hard: for each anchor the farthest of its own person and the nearest of another."""

    def __init__(self, margin):
        super().__init__()
        self.ranking_loss = nn.MarginRankingLoss(margin=margin)

    def forward(self, features, targets):
        n = features.size(0)
        dist = features.pow(2).sum(dim=1, keepdim=True).expand(n, n)
        dist = dist + dist.t()
        dist = torch.addmm(dist, features, features.t(), beta=1, alpha=-2)
        dist = dist.clamp(min=1e-12).sqrt()
        mask = targets.expand(n, n).eq(targets.expand(n, n).t())
        if arguments.fixed:
            dist_ap = dist.masked_fill(~mask, float("-inf")).max(dim=1).values
            dist_an = dist.masked_fill(mask, float("inf")).min(dim=1).values
        else:
            dist_ap, dist_an = [], []
            for i in range(n):
                dist_ap.append(dist[i][mask[i]].max().unsqueeze(0))
                dist_an.append(dist[i][mask[i] == 0].min().unsqueeze(0))
            dist_ap, dist_an = torch.cat(dist_ap), torch.cat(dist_an)
        return self.ranking_loss(dist_an, dist_ap, torch.ones_like(dist_an))


class Baseline(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torchvision.models.resnet18() if arguments.small else torchvision.models.resnet50()
        width = self.trunk.fc.in_features
        self.trunk.fc = nn.Identity()
        self.neck = nn.BatchNorm1d(width)
        self.classifier = nn.Linear(width, known, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, images):
        features = self.trunk(images)
        return self.classifier(self.neck(features)), features


torch.manual_seed(0)
with torch.device(device):
    model = Baseline().to(memory_format=torch.channels_last)
    photographs = torch.randint(0, 256, (4, persons * views, 3, high, wide), dtype=torch.uint8)
    # As the sampler gives them: so many persons, each so many times.
    people = torch.stack([torch.randperm(known)[:persons].repeat_interleave(views) for _ in range(4)])
optimizer = torch.optim.Adam(model.parameters(), lr=3.5e-4, weight_decay=5e-4, fused=has_gpu)
triplet = TripletLoss(MARGIN)
for step in range(1, arguments.steps + 1):
    images = (photographs[step % 4].float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last)
    targets = people[step % 4]
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        scores, features = model(images)
    identity = functional.cross_entropy(scores.float(), targets, label_smoothing=0.1)
    loss = identity + triplet(features.float(), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f} identity {identity.item():.4f}")
