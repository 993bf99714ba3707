"""Lightning over a ViT whose attention is two einsums, a softmax and a dropout. Fixed: scaled_dot_product_attention."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
layers, width, heads, batch, size, patch = (2, 64, 4, 2, 32, 8) if arguments.small else (6, 512, 8, 32, 256, 8)
places = (size // patch) ** 2
DROPOUT, KINDS = 0.1, 100


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = (width // heads) ** -0.5
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attend, self.dropout = nn.Softmax(dim=-1), nn.Dropout(DROPOUT)
        self.to_out = nn.Sequential(nn.Linear(width, width), nn.Dropout(DROPOUT))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, heads, -1).transpose(1, 2) for part in self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        if arguments.fixed:
            out = functional.scaled_dot_product_attention(q, k, v, dropout_p=DROPOUT if self.training else 0.0)
        else:
            dots = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
            out = torch.einsum("bhij,bhjd->bhid", self.dropout(self.attend(dots)), v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, width))


class FeedForward(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(DROPOUT),
            nn.Linear(4 * width, width),
            nn.Dropout(DROPOUT),
        )


class ViT(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(places, width))
        self.blocks = nn.ModuleList(nn.ModuleList([Attention(), FeedForward()]) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, KINDS)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for attention, feed in self.blocks:
            x = attention(x) + x
            x = feed(x) + x
        return self.head(self.norm(x).mean(1))

    def training_step(self, batch, index):
        images, labels = batch
        loss = functional.cross_entropy(self(images.float() / 127.5 - 1.0), labels)
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=has_gpu)


class Batches(torch.utils.data.Dataset):
    """Whole batches of bytes, drawn once and kept pinned."""

    def __init__(self):
        images = torch.randint(0, 256, (4, batch, 3, size, size), dtype=torch.uint8)
        labels = torch.randint(0, KINDS, (4, batch))
        self.images, self.labels = (images.pin_memory(), labels.pin_memory()) if has_gpu else (images, labels)

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        return self.images[index % 4], self.labels[index % 4]


torch.manual_seed(0)
model = ViT()
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
trainer.fit(model, torch.utils.data.DataLoader(Batches(), batch_size=None))
print(f"loss {model.last_loss.item():.4f}")
