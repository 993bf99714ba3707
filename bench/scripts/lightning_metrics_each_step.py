"""Lightning over a feature pyramid whose torchmetrics are taken at every training step. Fixed: at every fiftieth."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
import torchmetrics
import torchvision
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
batch, size, width = (2, 64, 16) if arguments.small else (24, 512, 128)
KINDS = 19
torch.backends.cudnn.benchmark = True


class Pyramid(nn.Module):
    """torchvision's ResNet-34 with the maps of its four stages summed at a quarter of the side."""

    def __init__(self):
        super().__init__()
        trunk = torchvision.models.resnet18() if arguments.small else torchvision.models.resnet34()
        self.stem = nn.Sequential(trunk.conv1, trunk.bn1, trunk.relu, trunk.maxpool)
        self.stages = nn.ModuleList([trunk.layer1, trunk.layer2, trunk.layer3, trunk.layer4])
        self.sides = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in (64, 128, 256, 512))
        self.smooth = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True))
        self.classify = nn.Conv2d(width, KINDS, 1)

    def forward(self, images):
        x, maps = self.stem(images), []
        for stage, side in zip(self.stages, self.sides):
            x = stage(x)
            maps.append(side(x))
        top = maps[-1]
        for below in reversed(maps[:-1]):
            top = below + functional.interpolate(top, scale_factor=2, mode="nearest")
        scores = self.classify(self.smooth(top)).float().contiguous()
        return functional.interpolate(scores, scale_factor=4, mode="bilinear", align_corners=False)


class Segmenter(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Pyramid().to(memory_format=torch.channels_last)
        self.train_metrics = torchmetrics.MetricCollection(
            {
                "accuracy": torchmetrics.classification.MulticlassAccuracy(KINDS),
                "f1": torchmetrics.classification.MulticlassF1Score(KINDS),
                "iou": torchmetrics.classification.MulticlassJaccardIndex(KINDS),
            },
            prefix="train_",
        )

    def training_step(self, batch, index):
        images, labels = batch
        labels = labels.long()
        scores = self.model((images.float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last))
        loss = functional.cross_entropy(scores, labels)
        self.log("train_loss", loss)
        if not arguments.fixed or index % 50 == 49:
            self.log_dict(self.train_metrics(scores.argmax(dim=1), labels))
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4, fused=has_gpu)


class Streets(torch.utils.data.Dataset):
    """Whole batches of bytes, drawn once and kept pinned."""

    def __init__(self):
        images = torch.randint(0, 256, (4, batch, 3, size, size), dtype=torch.uint8)
        coarse = torch.randint(0, KINDS, (4, batch, size // 16, size // 16), dtype=torch.uint8)
        labels = coarse.repeat_interleave(16, 2).repeat_interleave(16, 3)
        self.images, self.labels = (images.pin_memory(), labels.pin_memory()) if has_gpu else (images, labels)

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        return self.images[index % 4], self.labels[index % 4]


torch.manual_seed(0)
module = Segmenter()
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    max_epochs=-1,
    precision="bf16-mixed",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
)
trainer.fit(module, torch.utils.data.DataLoader(Streets(), batch_size=None))
print(f"loss {module.last_loss.item():.4f}")
