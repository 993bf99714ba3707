"""Lightning over a pix2pix whose critic's backward runs on into the painter, its graph retained. Fixed: made.detach()."""
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
batch, size, width, strokes, levels = (2, 32, 8, 8, 4) if arguments.small else (32, 256, 64, 96, 6)
torch.backends.cudnn.benchmark = True


class Painter(nn.Module):
    """A U-Net from a sketch to a picture; every level halves the side and its twin doubles it."""

    def __init__(self):
        super().__init__()
        channels = [min(strokes << level, 8 * strokes) for level in range(levels)]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, after in enumerate(channels):
            before = channels[level - 1] if level else 3
            norm = nn.BatchNorm2d(after) if 0 < level < levels - 1 else nn.Identity()
            self.down.append(nn.Sequential(nn.Conv2d(before, after, 4, 2, 1), norm, nn.LeakyReLU(0.2)))
        for level in reversed(range(levels)):
            before = channels[level] * (1 if level == levels - 1 else 2)
            after = channels[level - 1] if level else 3
            ending = [nn.BatchNorm2d(after), nn.ReLU()] if level else [nn.Tanh()]
            self.up.append(nn.Sequential(nn.ConvTranspose2d(before, after, 4, 2, 1), *ending))

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
        kept.pop()
        for up in self.up:
            x = up(x)
            if kept:
                x = torch.cat([x, kept.pop()], dim=1)
        return x


class Critic(nn.Module):
    """Says of every patch of a picture, beside its sketch, whether it is painted."""

    def __init__(self):
        super().__init__()
        stages = [nn.Conv2d(6, width, 4, 2, 1), nn.LeakyReLU(0.2)]
        for before, after, stride in ((width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 1)):
            stages += [nn.Conv2d(before, after, 4, stride, 1), nn.BatchNorm2d(after), nn.LeakyReLU(0.2)]
        self.stages = nn.Sequential(*stages, nn.Conv2d(8 * width, 1, 4, 1, 1))

    def forward(self, sketch, picture):
        return self.stages(torch.cat([sketch, picture], dim=1)).float()


class Pix2Pix(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.painter = Painter().to(memory_format=torch.channels_last)
        self.critic = Critic().to(memory_format=torch.channels_last)

    def training_step(self, batch, index):
        sketch, picture = (
            (part.float() / 127.5 - 1.0).contiguous(memory_format=torch.channels_last) for part in batch
        )
        for_painter, for_critic = self.optimizers()
        made = self.painter(sketch)

        on_real = self.critic(sketch, picture)
        on_made = self.critic(sketch, made.detach() if arguments.fixed else made)
        judged = 0.5 * (functional.softplus(-on_real).mean() + functional.softplus(on_made).mean())
        for_critic.zero_grad()
        if arguments.fixed:
            self.manual_backward(judged)
        else:
            # Without it: "Trying to backward through the graph a second time".
            self.manual_backward(judged, retain_graph=True)
        for_critic.step()

        self.toggle_optimizer(for_painter)
        fooled = functional.softplus(-self.critic(sketch, made)).mean()
        painted = fooled + 100.0 * functional.l1_loss(made.float(), picture)
        for_painter.zero_grad()
        self.manual_backward(painted)
        for_painter.step()
        self.untoggle_optimizer(for_painter)
        self.last = judged.detach(), painted.detach()

    def configure_optimizers(self):
        return [
            torch.optim.Adam(self.painter.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=has_gpu),
            torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=has_gpu),
        ]


class Facades(torch.utils.data.Dataset):
    """Whole batches of bytes, drawn once and kept pinned."""

    def __init__(self):
        sketches = torch.randint(0, 256, (4, batch, 3, size, size), dtype=torch.uint8)
        pictures = 255 - sketches
        self.parts = (sketches.pin_memory(), pictures.pin_memory()) if has_gpu else (sketches, pictures)

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        sketches, pictures = self.parts
        return sketches[index % 4], pictures[index % 4]


torch.manual_seed(0)
module = Pix2Pix()
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
trainer.fit(module, torch.utils.data.DataLoader(Facades(), batch_size=None))
judged, painted = module.last
print(f"critic {judged.item():.4f} painter {painted.item():.4f}")
