"""Lightning over torchvision's ViT-B/16 at its default precision. Fixed: precision="bf16-mixed"."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
import torchvision
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
batch, size = (2, 32) if arguments.small else (64, 224)


class Batches(torch.utils.data.Dataset):
    """Whole batches of bytes, drawn once and kept pinned."""

    def __init__(self):
        images = torch.randint(0, 256, (4, batch, 3, size, size), dtype=torch.uint8)
        labels = torch.randint(0, 1000, (4, batch))
        self.images, self.labels = (images.pin_memory(), labels.pin_memory()) if has_gpu else (images, labels)

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        return self.images[index % 4], self.labels[index % 4]


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        if arguments.small:
            self.body = torchvision.models.VisionTransformer(size, 16, 2, 4, 64, 128)
        else:
            self.body = torchvision.models.vit_b_16()

    def training_step(self, batch, index):
        images, labels = batch
        return nn.functional.cross_entropy(self.body(images.float() / 127.5 - 1.0), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=has_gpu)


torch.manual_seed(0)
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    max_epochs=-1,
    precision="bf16-mixed" if arguments.fixed else "32-true",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
)
trainer.fit(Model(), torch.utils.data.DataLoader(Batches(), batch_size=None))
