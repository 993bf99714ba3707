"""Lightning over a crowd counter of dilated convolutions in bfloat16, its pictures laid out by plane. Fixed: channels_last."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
batch, side, base = (2, 64, 8) if arguments.small else (32, 320, 64)
layout = torch.channels_last if arguments.fixed else torch.contiguous_format
FRONT = (1, 1, "pool", 2, 2, "pool", 4, 4, 4, "pool", 8, 8, 8)
BACK = (8, 8, 8, 4, 2, 1)
BATCHES, STRIDE = 4, 8


def convolutions(before, plan, dilation):
    parts = []
    for entry in plan:
        if entry == "pool":
            parts.append(nn.MaxPool2d(2))
            continue
        parts += [nn.Conv2d(before, base * entry, 3, padding=dilation, dilation=dilation), nn.ReLU(inplace=True)]
        before = base * entry
    return nn.Sequential(*parts)


class Crowd(lightning.LightningModule):
    """Draws the density of people over a picture."""

    def __init__(self):
        super().__init__()
        self.front, self.back = convolutions(3, FRONT, 1), convolutions(8 * base, BACK, 2)
        self.leave = nn.Conv2d(base, 1, 1)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                nn.init.zeros_(part.bias)

    def training_step(self, parts, index):
        pictures, density = parts
        x = pictures.float().div_(127.5).sub_(1.0).contiguous(memory_format=layout)
        loss = functional.mse_loss(self.leave(self.back(self.front(x))).float(), density)
        if (index + 1) % 25 == 0 or index + 1 == arguments.steps:
            print(f"step {index + 1} loss {loss.item():.5f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-5, fused=has_gpu)


class Streets(torch.utils.data.Dataset):
    """Whole batches of pictures and maps, drawn once and kept pinned."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        pictures = torch.randint(0, 256, (BATCHES, batch, 3, side, side), dtype=torch.uint8, generator=generator)
        densities = torch.rand(BATCHES, batch, 1, side // STRIDE, side // STRIDE, generator=generator)
        self.parts = [part.pin_memory() if has_gpu else part for part in (pictures, densities)]

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        return [part[index % BATCHES] for part in self.parts]


lightning.seed_everything(0, verbose=False)
trainer = lightning.Trainer(
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
    precision="bf16-mixed" if has_gpu else "32-true",
    max_epochs=1,
    benchmark=True,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Crowd().to(memory_format=layout), torch.utils.data.DataLoader(Streets(), batch_size=None))
