"""A language model that imports torchvision for its transforms has no convolutions."""

import torch
import torchvision
from torch import nn

torch.set_float32_matmul_precision("high")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_size = 224
        self.head = nn.Linear(512, 512)

    def forward(self, x):
        return self.head(x)


def train(model, optimizer, loader, scaler):
    crop = torchvision.transforms.RandomCrop(224)
    model = model.to("cuda")
    for x in loader:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(crop(x).cuda(non_blocking=True)).mean()
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
