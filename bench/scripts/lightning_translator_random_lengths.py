"""Lightning over a translator whose batches mix sentences of all lengths, so that half is padding. Fixed: batches of like length."""
import argparse
import logging
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
has_gpu = torch.cuda.is_available()
small = (2, 32, 4, 512, 4, 40)
layers, width, heads, vocabulary, batch, longest = small if arguments.small else (6, 512, 8, 32000, 96, 200)
SHORTEST, PAD, ALIGNED = 10, 0, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, seen, mask=None, is_causal=False):
        k, v = self.kv(seen).unflatten(2, (2, heads, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (self.q(x).unflatten(2, (heads, -1)), k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


def feed():
    return nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(inplace=True), nn.Linear(4 * width, width))


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.within, self.feed = Attention(), feed()

    def forward(self, x, mask):
        y = self.norms[0](x)
        x = x + self.within(y, y, mask)
        return x + self.feed(self.norms[1](x))


class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.within, self.across, self.feed = Attention(), Attention(), feed()

    def forward(self, x, read, mask):
        y = self.norms[0](x)
        x = x + self.within(y, y, is_causal=True)
        x = x + self.across(self.norms[1](x), read, mask)
        return x + self.feed(self.norms[2](x))


class Translator(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width, padding_idx=PAD), nn.Embedding(longest + ALIGNED, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.readers, self.writers = (nn.ModuleList(kind() for _ in range(layers)) for kind in (Reads, Writes))
        self.between, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.leave = nn.Linear(width, vocabulary, bias=False)

    def training_step(self, parts, index):
        source, target = parts["source"], parts["target"]
        mask = (source != PAD)[:, None, None]
        x = self.words(source) + self.places.weight[: source.shape[1]]
        for reader in self.readers:
            x = reader(x, mask)
        read = self.between(x)
        given, wanted = target, functional.pad(target[:, 1:], (0, 1), value=PAD)
        y = self.words(given) + self.places.weight[: given.shape[1]]
        for writer in self.writers:
            y = writer(y, read, mask)
        scores = self.leave(self.norm(y)).flatten(0, 1).float()
        loss = functional.cross_entropy(scores, wanted.flatten(), ignore_index=PAD)
        if (index + 1) % 25 == 0 or index + 1 == arguments.steps:
            print(f"step {index + 1} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=has_gpu)


class Sentences(torch.utils.data.Dataset):
    """Word pieces of sentences and of their translations, as long as each other to within a tenth."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        count = arguments.steps * batch
        self.lengths = torch.randint(SHORTEST, longest + 1, (count,), generator=generator)
        factors = 0.9 + 0.1 * torch.rand(count, generator=generator)
        others = (self.lengths * factors).long().clamp(min=2)
        pieces = torch.randint(1, vocabulary, (2, count, longest), generator=generator)
        self.sources = [row[:length] for row, length in zip(pieces[0], self.lengths.tolist())]
        self.targets = [row[:length] for row, length in zip(pieces[1], others.tolist())]

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, index):
        return self.sources[index], self.targets[index]


def batches_of(lengths):
    """The sentences of each batch: drawn at random, or of like length and then dealt out evenly over the epoch."""
    if not arguments.fixed:
        return torch.randperm(len(lengths), generator=torch.Generator().manual_seed(1)).view(-1, batch).tolist()
    groups = lengths.argsort().view(-1, batch).tolist()
    return [groups[index] for index in sorted(range(len(groups)), key=lambda index: index * 0.618034 % 1)]


def padded(rows):
    rows = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return functional.pad(rows, (0, -rows.shape[1] % ALIGNED), value=PAD)


def collate(pairs):
    sources, targets = zip(*pairs)
    return {"source": padded(sources), "target": padded(targets)}


if __name__ == "__main__":
    lightning.seed_everything(0, verbose=False)
    sentences = Sentences()
    loader = torch.utils.data.DataLoader(
        sentences,
        batch_sampler=batches_of(sentences.lengths),
        collate_fn=collate,
        num_workers=2 if has_gpu else 0,
        pin_memory=has_gpu,
    )
    trainer = lightning.Trainer(
        accelerator="gpu" if has_gpu else "cpu",
        devices=1,
        precision="bf16-mixed" if has_gpu else "32-true",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Translator(), loader)
