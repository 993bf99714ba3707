"""Lightning over a vocoder that makes its waves anew for the critics and for itself. Fixed: made once, detached."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
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
batch, frames, width, critic = (2, 4, 16, 4) if arguments.small else (64, 32, 512, 32)
BANDS, WINDOW, HOP, SLOPE = 80, 1024, 256, 0.1
RISES, KERNELS, DILATIONS, PERIODS = (8, 8, 2, 2), (3, 7, 11), (1, 3, 5), (2, 3, 5)
torch.backends.cudnn.benchmark = True


class Residual(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        spread = [nn.Conv1d(channels, channels, kernel, padding="same", dilation=dilation) for dilation in DILATIONS]
        plain = [nn.Conv1d(channels, channels, kernel, padding="same") for _ in DILATIONS]
        self.spread, self.plain = nn.ModuleList(spread), nn.ModuleList(plain)

    def forward(self, x):
        for spread, plain in zip(self.spread, self.plain):
            x = x + plain(functional.leaky_relu(spread(functional.leaky_relu(x, SLOPE)), SLOPE))
        return x


class Vocoder(nn.Module):
    """From the bands of a sound to its wave, 256 samples to a frame."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1d(BANDS, width, 7, padding=3)
        self.rise, self.shape = nn.ModuleList(), nn.ModuleList()
        for level, rise in enumerate(RISES):
            before, after = width >> level, width >> (level + 1)
            self.rise.append(nn.ConvTranspose1d(before, after, 2 * rise, rise, rise // 2))
            self.shape.append(nn.ModuleList(Residual(after, kernel) for kernel in KERNELS))
        self.leave = nn.Conv1d(width >> len(RISES), 1, 7, padding=3)

    def forward(self, bands):
        x = self.enter(bands)
        for rise, shapes in zip(self.rise, self.shape):
            x = rise(functional.leaky_relu(x, SLOPE))
            x = sum(shape(x) for shape in shapes) / len(KERNELS)
        return torch.tanh(self.leave(functional.leaky_relu(x, SLOPE)))


class Critic(nn.Module):
    """Folds a wave at a period and judges the columns."""

    def __init__(self, period):
        super().__init__()
        self.period = period
        channels = (1, critic, 2 * critic, 8 * critic, 16 * critic)
        self.stages = nn.ModuleList(
            nn.Conv2d(before, after, (5, 1), (3, 1), (2, 0)) for before, after in zip(channels, channels[1:])
        )
        self.stages.append(nn.Conv2d(16 * critic, 16 * critic, (5, 1), padding=(2, 0)))
        self.leave = nn.Conv2d(16 * critic, 1, (3, 1), padding=(1, 0))

    def forward(self, wave):
        wave = functional.pad(wave, (0, -wave.shape[2] % self.period), "reflect")
        x, seen = wave.unflatten(2, (-1, self.period)), []
        for stage in self.stages:
            x = functional.leaky_relu(stage(x), SLOPE)
            seen.append(x)
        return self.leave(x).float(), seen


class VocoderTraining(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.vocoder = Vocoder()
        self.critics = nn.ModuleList(Critic(period) for period in PERIODS)
        self.register_buffer("window", torch.hann_window(WINDOW))
        self.register_buffer("bands", torch.rand(BANDS, WINDOW // 2 + 1, generator=torch.Generator().manual_seed(2)) / WINDOW)

    def heard(self, wave):
        with torch.autocast(wave.device.type, enabled=False):
            spectrum = torch.stft(wave.squeeze(1).float(), WINDOW, HOP, window=self.window, return_complex=True)
            return torch.log(self.bands @ spectrum.abs().clamp(min=1e-5) + 1e-5)

    def training_step(self, parts, index):
        bands, wave = parts
        for_critics, for_vocoder = self.optimizers()

        made = self.vocoder(bands)
        self.toggle_optimizer(for_critics)
        judged = 0.0
        for one in self.critics:
            on_real, on_made = one(wave)[0], one(made.detach())[0]
            judged = judged + (1 - on_real).square().mean() + on_made.square().mean()
        for_critics.zero_grad()
        self.manual_backward(judged)
        for_critics.step()
        self.untoggle_optimizer(for_critics)

        self.toggle_optimizer(for_vocoder)
        if not arguments.fixed:
            made = self.vocoder(bands)
        loss = 45.0 * functional.l1_loss(self.heard(made), self.heard(wave))
        for one in self.critics:
            with torch.no_grad():
                _, seen_real = one(wave)
            on_made, seen_made = one(made)
            loss = loss + (1 - on_made).square().mean()
            for real, fake in zip(seen_real, seen_made):
                loss = loss + 2.0 * functional.l1_loss(fake, real)
        for_vocoder.zero_grad()
        self.manual_backward(loss)
        for_vocoder.step()
        self.untoggle_optimizer(for_vocoder)
        if (index + 1) % 25 == 0 or index + 1 == arguments.steps:
            print(f"step {index + 1} critics {judged.item():.4f} vocoder {loss.item():.4f}")

    def configure_optimizers(self):
        return [
            torch.optim.AdamW(self.critics.parameters(), lr=2e-4, betas=(0.8, 0.99), fused=has_gpu),
            torch.optim.AdamW(self.vocoder.parameters(), lr=2e-4, betas=(0.8, 0.99), fused=has_gpu),
        ]


class Sounds(torch.utils.data.Dataset):
    """Whole batches of bands and waves, drawn once and kept pinned."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        bands = torch.randn(8, batch, BANDS, frames, generator=generator)
        waves = 0.1 * torch.randn(8, batch, 1, 256 * frames, generator=generator)
        self.parts = (bands.pin_memory(), waves.pin_memory()) if has_gpu else (bands, waves)

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        bands, waves = self.parts
        return bands[index % 8], waves[index % 8]


lightning.seed_everything(0, verbose=False)
trainer = lightning.Trainer(
    max_epochs=1,
    precision="bf16-mixed" if has_gpu else "32-true",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
)
trainer.fit(VocoderTraining(), torch.utils.data.DataLoader(Sounds(), batch_size=None))
