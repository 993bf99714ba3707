"""Numbers that never were on a device: random numbers of transforms, counts, and waits for files."""

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


class RandomCrop(nn.Module):
    def forward(self, image):
        height, width = sizes_of(image)
        draw = torch.rand(2)
        top = int(height * draw[0])
        left = torch.randint(0, width - top + 1, size=(1,)).item()
        return image[..., top:, left:]


class Meters:
    def __init__(self, meter):
        self.meter = meter

    def update(self, loss):
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
            loss = loss.item()  # <- TP101
        self.meter.update(loss)


class Bounded(nn.Module):
    def forward(self, x):
        loss = x.mean()
        if loss.item() > 1.0:  # <- TP101
            print(f"out of range: {loss.item()}")
            loss = torch.tensor(1.0, device=x.device)
        return loss


def train(model, optimizer, criterion, loader, checkpoint_io, ranks, meter):
    meters = Meters(meter)
    model = DistributedDataParallel(model) if ranks > 1 else DataParallel(model)
    total_size = 0
    for x in loader:
        x = x.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss, sample_size = criterion(model(x))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total_size += sample_size
        meters.update(loss)  # <- TP103
        checkpoint_io.synchronize()
    return total_size
