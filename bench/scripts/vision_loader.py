"""torchvision's ResNet-50 whose images are prepared in the training process. Fixed: worker processes."""
import argparse

import torch
import torchvision
from torchvision.transforms import v2

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
batch, size = (4, 32) if arguments.small else (64, 224)
torch.set_num_threads(1)


class Images(torch.utils.data.Dataset):
    def __init__(self):
        self.images = torch.randint(0, 256, (64, 3, size + 64, size + 64), dtype=torch.uint8)
        self.prepare = v2.Compose([
            v2.RandomResizedCrop(size, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ])

    def __len__(self):
        return batch * arguments.steps

    def __getitem__(self, index):
        return self.prepare(self.images[index % 64]), index % 1000


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torchvision.models.resnet18() if arguments.small else torchvision.models.resnet50()
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=batch, pin_memory=has_gpu, num_workers=8 if arguments.fixed else 0
    )
    for images, labels in loader:
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
