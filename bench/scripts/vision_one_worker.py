"""torchvision's ResNet-101 whose JPEG files are decoded and cropped by a single worker process. Fixed: eight workers."""
import argparse
import io

import numpy
import torch
import torchvision
from PIL import Image
from torchvision import transforms

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, side, size, pool = (4, 64, 48, 8) if arguments.small else (64, 256, 224, 256)
torch.backends.cudnn.benchmark = True


class Photographs(torch.utils.data.Dataset):
    """Files of a folder, held in memory as they lie on the disk; decoded anew at every draw."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        self.files = []
        for _ in range(pool):
            coarse = Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=numpy.uint8))
            smooth = numpy.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=numpy.float32)
            grainy = numpy.clip(smooth + draw.normal(0.0, 6.0, smooth.shape), 0, 255).astype(numpy.uint8)
            file = io.BytesIO()
            Image.fromarray(grainy).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.prepare = transforms.Compose([
            transforms.RandomCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ])

    def __len__(self):
        return batch * arguments.steps

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % pool])).convert("RGB")
        return self.prepare(image), index % 1000


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torchvision.models.resnet18() if arguments.small else torchvision.models.resnet101()
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=has_gpu)
    workers = (2 if arguments.small else 8) if arguments.fixed else 1
    loader = torch.utils.data.DataLoader(
        Photographs(), batch_size=batch, shuffle=True, num_workers=workers, pin_memory=has_gpu, drop_last=True
    )
    for images, labels in loader:
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print(f"loss {loss.item():.4f}")
