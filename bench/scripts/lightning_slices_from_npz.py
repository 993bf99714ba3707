"""Lightning over a U-Net whose CT slices, compressed .npz files, are opened by the training process. Fixed: eight workers."""
import argparse
import logging
import tempfile
import warnings
from pathlib import Path

import numpy
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
batch, slices, side, base = (2, 4, 64, 8) if arguments.small else (8, 48, 512, 48)
workers = (2 if arguments.small else 8) if arguments.fixed else 0
LEVELS, ORGANS = 4, 8
LOW, HIGH = -160.0, 240.0


def write_slices(folder):
    """Smooth bodies with a little noise, in Hounsfield units, and the organ at every pixel."""
    draw = numpy.random.default_rng(0)
    down, across = numpy.mgrid[:side, :side].astype(numpy.float32) / side
    for number in range(slices):
        waves = draw.uniform(2, 12, (3, 2))
        field = sum(numpy.sin(a * down + 3 * i) * numpy.cos(b * across - 2 * i) for i, (a, b) in enumerate(waves))
        units = (150 * field + draw.normal(0, 8, field.shape)).astype(numpy.int16)
        organs = numpy.clip((field + 3) * ORGANS / 6, 0, ORGANS - 1).astype(numpy.uint8)
        numpy.savez_compressed(folder / f"{number:04}.npz", units=units, organs=organs)


class Slices(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.npz"))

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        with numpy.load(self.paths[index % slices]) as stored:
            units, organs = stored["units"], stored["organs"]
        picture = (numpy.clip(units.astype(numpy.float32), LOW, HIGH) - LOW) / (HIGH - LOW)
        if index % 2:
            picture, organs = picture[:, ::-1], organs[:, ::-1]
        return torch.from_numpy(picture.copy())[None], torch.from_numpy(organs.copy())


def twice(before, after):
    parts = []
    for entering in (before, after):
        parts += [nn.Conv2d(entering, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts)


class Organs(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        sizes = [base * 2**level for level in range(LEVELS)]
        self.down = nn.ModuleList(twice(before, after) for before, after in zip([1, *sizes], sizes))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in sizes[-2::-1])
        self.up = nn.ModuleList(twice(2 * size, size) for size in sizes[-2::-1])
        self.leave = nn.Conv2d(base, ORGANS, 1)

    def training_step(self, parts, index):
        x, organs = parts
        x, kept = x.contiguous(memory_format=torch.channels_last), []
        for level, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for rise, up, skip in zip(self.rise, self.up, kept[-2::-1]):
            x = up(torch.cat([rise(x), skip], dim=1))
        loss = functional.cross_entropy(self.leave(x).float(), organs.long())
        if (index + 1) % 25 == 0 or index + 1 == arguments.steps:
            print(f"step {index + 1} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=has_gpu)


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as name:
        write_slices(Path(name))
        loader = torch.utils.data.DataLoader(Slices(Path(name)), batch_size=batch, num_workers=workers, pin_memory=has_gpu)
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
        trainer.fit(Organs().to(memory_format=torch.channels_last), loader)
