"""Lightning over a decision transformer whose attention is given a causal mask alone. Fixed: is_causal=True too."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
layers, width, heads, batch, moments = (2, 32, 4, 4, 16) if arguments.small else (8, 512, 8, 16, 1024)
STATE, ACTION = 17, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, mask):
        y = self.before(x)
        y, _ = self.attention(y, y, y, attn_mask=mask, need_weights=False, is_causal=arguments.fixed)
        x = x + y
        return x + self.feed(self.between(x))


class Decision(lightning.LightningModule):
    """Reads returns, states and actions in turn and says which action follows each state."""

    def __init__(self):
        super().__init__()
        self.reward, self.state, self.action = nn.Linear(1, width), nn.Linear(STATE, width), nn.Linear(ACTION, width)
        self.places = nn.Parameter(0.02 * torch.randn(moments, 1, width))
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, ACTION)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(3 * moments))

    def training_step(self, batch, index):
        rewards, states, actions = batch
        tokens = torch.stack([self.reward(rewards), self.state(states), self.action(actions)], dim=2) + self.places
        x = tokens.flatten(1, 2)
        for block in self.blocks:
            x = block(x, self.mask)
        found = torch.tanh(self.leave(self.norm(x[:, 1::3])))
        self.last = nn.functional.mse_loss(found.float(), actions.float())
        return self.last

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=has_gpu)


class Games(torch.utils.data.Dataset):
    """Whole batches of played games, drawn once and kept pinned."""

    def __init__(self):
        parts = [torch.randn(4, batch, moments, size) for size in (1, STATE)]
        parts.append(torch.rand(4, batch, moments, ACTION) * 2 - 1)
        self.parts = [part.pin_memory() if has_gpu else part for part in parts]

    def __len__(self):
        return arguments.steps

    def __getitem__(self, index):
        return [part[index % 4] for part in self.parts]


torch.manual_seed(0)
module = Decision()
trainer = lightning.Trainer(
    max_epochs=1,
    precision="bf16-true" if has_gpu else "32-true",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    accelerator="gpu" if has_gpu else "cpu",
    devices=1,
)
trainer.fit(module, torch.utils.data.DataLoader(Games(), batch_size=None))
print(f"loss {module.last.item():.4f}")
