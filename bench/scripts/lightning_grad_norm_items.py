"""Lightning over a protein encoder that reads each tensor's gradient norm by item(). Fixed: one norm, left there."""
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

has_gpu = torch.cuda.is_available()
small = arguments.small
layers, width, heads, batch, length = (2, 32, 4, 4, 24) if small else (24, 512, 8, 64, 256)
RESIDUES, MASK = 32, 31
warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Batches(torch.utils.data.Dataset):
    """Ready batches of proteins with a seventh of the residues hidden."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.residues = torch.randint(0, 25, (16, batch, length), generator=generator)
        self.hidden = torch.rand(16, batch, length, generator=generator) < 0.15

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        return self.residues[index % 16], self.hidden[index % 16]


class Proteins(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.residues, self.places = nn.Embedding(RESIDUES, width), nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.guess = nn.Linear(width, RESIDUES)
        self.norms = []

    def training_step(self, parts, index):
        residues, hidden = parts
        x = self.residues(residues.masked_fill(hidden, MASK)) + self.places
        scores = self.guess(self.encoder(x)).float()
        losses = functional.cross_entropy(scores.flatten(0, 1), residues.flatten(), reduction="none")
        loss = (losses * hidden.flatten()).sum() / hidden.sum()
        if (index + 1) % 25 == 0 or index + 1 == arguments.steps:
            print(f"step {index + 1} loss {loss.item():.4f} largest gradient {self.largest_norm():.4f}")
        return loss

    def on_before_optimizer_step(self, optimizer):
        if arguments.fixed:
            gradients = [p.grad for p in self.parameters() if p.grad is not None]
            self.norms.append(torch.nn.utils.get_total_norm(gradients))
            return
        total = 0.0
        for p in self.parameters():
            if p.grad is not None:
                total += p.grad.data.norm(2).item() ** 2
        self.norms.append(total**0.5)

    def largest_norm(self):
        largest = max(float(norm) for norm in self.norms)
        self.norms = []
        return largest

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=has_gpu)


lightning.seed_everything(0, verbose=False)
loader = torch.utils.data.DataLoader(Batches(), batch_size=None, pin_memory=has_gpu)
trainer = lightning.Trainer(
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
    precision="bf16-mixed" if has_gpu else "32-true",
    max_steps=arguments.steps,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Proteins(), loader)
