"""torchvision's ResNet-50 for poses, people warped and joints drawn as maps in the training process. Fixed: eight workers."""
import argparse

import numpy
import torch
import torchvision
from PIL import Image, ImageEnhance
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
small = arguments.small
batch, people, tall, wide = (4, 8, 64, 64) if small else (40, 256, 256, 192)
JOINTS, SIGMA, STRIDE = 17, 2.0, 4
MEAN, SPREAD = (numpy.array(row, numpy.float32) for row in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
torch.backends.cudnn.benchmark = True


class People(torch.utils.data.Dataset):
    """Pictures of people, turned, scaled and recoloured, with a map of where each joint is."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        self.pictures = draw.integers(0, 256, (people, tall * 5 // 4, wide * 5 // 4, 3), dtype=numpy.uint8)
        self.joints = draw.random((people, JOINTS, 2), dtype=numpy.float32) * (wide * 5 // 4, tall * 5 // 4)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        draw = numpy.random.default_rng(index)
        picture, joints = Image.fromarray(self.pictures[index % people]), self.joints[index % people]
        angle, scale = numpy.deg2rad(draw.uniform(-40, 40)), draw.uniform(0.7, 1.3)
        turn = numpy.array([[numpy.cos(angle), -numpy.sin(angle)], [numpy.sin(angle), numpy.cos(angle)]]) / scale
        middle, origin = numpy.array([wide, tall]) / 2, numpy.array(picture.size) / 2
        shift = origin - turn @ middle
        numbers = (*turn[0], shift[0], *turn[1], shift[1])
        picture = picture.transform((wide, tall), Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR)
        picture = ImageEnhance.Brightness(picture).enhance(draw.uniform(0.7, 1.3))
        picture = ImageEnhance.Contrast(picture).enhance(draw.uniform(0.7, 1.3))
        pixels = (numpy.asarray(picture, numpy.float32) / 255 - MEAN) / SPREAD
        places = (joints - shift) @ numpy.linalg.inv(turn).T / STRIDE
        return torch.from_numpy(numpy.ascontiguousarray(pixels.transpose(2, 0, 1))), torch.from_numpy(self.maps(places))

    def maps(self, places):
        down, across = numpy.mgrid[: tall // STRIDE, : wide // STRIDE].astype(numpy.float32)
        maps = numpy.zeros((JOINTS, tall // STRIDE, wide // STRIDE), numpy.float32)
        for joint, (x, y) in enumerate(places):
            maps[joint] = numpy.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * SIGMA**2))
        return maps


class Poses(nn.Module):
    def __init__(self):
        super().__init__()
        trunk = torchvision.models.resnet18() if small else torchvision.models.resnet50()
        deep = trunk.fc.in_features
        self.trunk = nn.Sequential(*list(trunk.children())[:-2])
        rises = []
        for before in (deep, 256, 256):
            rises += [nn.ConvTranspose2d(before, 256, 4, 2, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU(inplace=True)]
        self.rise, self.leave = nn.Sequential(*rises), nn.Conv2d(256, JOINTS, 1)

    def forward(self, x):
        return self.leave(self.rise(self.trunk(x)))


def main():
    torch.manual_seed(0)
    model = Poses().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=has_gpu)
    workers = (2 if small else 8) if arguments.fixed else 0
    loader = torch.utils.data.DataLoader(People(), batch_size=batch, shuffle=True, num_workers=workers, pin_memory=has_gpu)
    for step, (pictures, maps) in enumerate(loader, 1):
        pictures = pictures.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        maps = maps.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
            guessed = model(pictures)
        loss = functional.mse_loss(guessed.float(), maps)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 25 == 0 or step == arguments.steps:
            print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
