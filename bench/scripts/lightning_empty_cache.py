"""Lightning over torchvision's ViT with a callback that empties the allocator's cache each batch. Fixed: no callback."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
import torchvision
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, batch, side, pool = (2, 64, 4, 4, 32, 16) if arguments.small else (6, 768, 12, 192, 224, 1024)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torchvision.models.VisionTransformer(side, 16, layers, heads, width, 4 * width, num_classes=1000)
        # All images stay on the device; the loader deals out their numbers.
        self.register_buffer("images", torch.randint(0, 256, (pool, 3, side, side), dtype=torch.uint8))
        self.register_buffer("labels", torch.randint(0, 1000, (pool,)))

    def training_step(self, numbers, _):
        images = self.images[numbers].float().div_(127.5).sub_(1.0)
        return functional.cross_entropy(self.network(images), self.labels[numbers])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.network.parameters(), lr=1e-4, fused=device == "cuda")


class KeepMemoryLow(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        del outputs
        torch.cuda.empty_cache()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return index % pool


torch.manual_seed(0)
with torch.device(device):
    model = Classifier()
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    accelerator="gpu" if device == "cuda" else "cpu",
    devices=1,
    precision="bf16-mixed",
    callbacks=[] if arguments.fixed else [KeepMemoryLow()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, torch.utils.data.DataLoader(Numbers(), batch_size=batch))
