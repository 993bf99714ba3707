"""Lightning over a speech encoder whose loader, left at num_workers=0, augments waveforms in turn. Fixed: 8 workers."""
import argparse
import logging
import warnings

import numpy
import pytorch_lightning as lightning
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
layers, width, heads, batch, samples = (2, 64, 4, 4, 4000) if arguments.small else (10, 768, 12, 32, 64000)
WINDOW, HOP, BANDS, WORDS = 400, 160, 80, 35


class Speech(torch.utils.data.Dataset):
    """Recordings of four seconds; each draw adds noise, sets a gain, and takes the log of its spectrum in bands."""

    def __init__(self):
        draw = numpy.random.default_rng(0)
        self.waves = draw.standard_normal((128, samples), dtype=numpy.float32)
        self.bands = draw.random((WINDOW // 2 + 1, BANDS), dtype=numpy.float32) / WINDOW
        self.taper = numpy.hanning(WINDOW).astype(numpy.float32)

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        draw = numpy.random.default_rng(index)
        wave = self.waves[index % 128] + 0.1 * draw.standard_normal(samples, dtype=numpy.float32)
        wave *= draw.uniform(0.5, 1.5)
        frames = numpy.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP] * self.taper
        power = numpy.abs(numpy.fft.rfft(frames)).astype(numpy.float32) ** 2
        return torch.from_numpy(numpy.log(power @ self.bands + 1e-6)), index % WORDS


class Encoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(BANDS, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def training_step(self, batch, _):
        features, words = batch
        loss = nn.functional.cross_entropy(self.head(self.blocks(self.enter(features)).mean(1)), words)
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=has_gpu)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Encoder()
    trainer = lightning.Trainer(
        max_steps=arguments.steps,
        accelerator="gpu" if has_gpu else "cpu",
        devices=1,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    workers = (2 if arguments.small else 8) if arguments.fixed else 0
    trainer.fit(model, torch.utils.data.DataLoader(Speech(), batch, num_workers=workers, pin_memory=has_gpu))
    print(f"loss {model.last_loss.item():.4f}")
