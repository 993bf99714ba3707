"""Lightning over a transformer with detect_anomaly=True left on after a hunt for a NaN. Fixed: detect_anomaly=False."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers, width, heads, batch, length, bands, kinds, pool = (
    (2, 64, 4, 2, 32, 16, 8, 16) if arguments.small else (8, 512, 8, 96, 512, 80, 64, 384)
)


class Frames(lightning.LightningModule):
    """Labels every frame of a log-mel recording."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.first, self.places = nn.Linear(bands, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, kinds)
        # All recordings stay on the device; the loader deals out their numbers.
        self.register_buffer("recordings", torch.randn(pool, length, bands))
        self.register_buffer("labels", torch.randint(0, kinds, (pool, length)))

    def training_step(self, numbers, _):
        logits = self.head(self.body(self.first(self.recordings[numbers]) + self.places))
        self.loss = functional.cross_entropy(logits.flatten(0, 1), self.labels[numbers].flatten())
        return self.loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=device == "cuda")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return index % pool


torch.manual_seed(0)
with torch.device(device):
    model = Frames()
trainer = lightning.Trainer(
    max_steps=arguments.steps,
    accelerator="gpu" if device == "cuda" else "cpu",
    devices=1,
    precision="bf16-mixed",
    detect_anomaly=not arguments.fixed,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, torch.utils.data.DataLoader(Numbers(), batch_size=batch))
print(f"loss {model.loss.item():.4f}")
