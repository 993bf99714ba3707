"""Lightning over a ViT-S whose averaged weights are kept in the host's memory, as a saving. Fixed: kept on the device."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
import torchvision
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
layers, width, heads, batch, size = (2, 64, 4, 2, 32) if arguments.small else (12, 384, 6, 192, 224)
DECAY = 0.9999


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


class Average(lightning.Callback):
    """Exponential moving average of the weights."""

    def on_train_start(self, trainer, module):
        self.kept = {}
        for name, value in module.state_dict().items():
            self.kept[name] = value.detach().clone() if arguments.fixed else value.detach().cpu().clone()

    @torch.no_grad()
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        values = module.state_dict()
        if arguments.fixed:
            torch._foreach_lerp_(list(self.kept.values()), [values[name] for name in self.kept], 1 - DECAY)
            return
        for name, value in values.items():
            self.kept[name].mul_(DECAY).add_(value.detach().cpu(), alpha=1 - DECAY)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torchvision.models.VisionTransformer(size, 16, layers, heads, width, 4 * width)

    def training_step(self, batch, index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.body(images.float() / 127.5 - 1.0), labels, label_smoothing=0.1)
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, weight_decay=0.05, fused=has_gpu)


torch.manual_seed(0)
model, average = Model(), Average()
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    max_epochs=-1,
    precision="bf16-mixed",
    callbacks=[average],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
)
trainer.fit(model, torch.utils.data.DataLoader(Batches(), batch_size=None))
apart = sum((average.kept[name].cpu() - value.cpu()).abs().sum().item() for name, value in model.state_dict().items())
print(f"loss {model.last_loss.item():.4f} average apart by {apart:.4f}")
