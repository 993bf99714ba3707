"""Accelerate over a GPT whose documents are cut into word pieces as they are dealt. Fixed: cut once, before training."""
import argparse
import random
import re

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
layers, width, heads, batch, length, words, pool = (2, 64, 4, 2, 32, 24, 16) if arguments.small else (4, 512, 8, 64, 512, 384, 512)
draw = random.Random(0)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
stems = ["".join(draw.choices(LETTERS, k=draw.randint(2, 6))) for _ in range(7000)]
pieces = sorted({*LETTERS, *stems, ".", ","})
numbers = {piece: number for number, piece in enumerate(pieces, start=1)}
vocabulary = 8192 if not arguments.small else -(-(len(pieces) + 1) // 64) * 64


def made_document():
    return " ".join(
        draw.choice(stems).capitalize() + draw.choice(stems) + draw.choice(["", "", "", ",", "."]) for _ in range(words)
    )


def tokens_of(document):
    """The longest known piece first, as WordPiece does, cut or padded to one more than the length."""
    found = []
    for word in re.findall(r"\w+|[^\w\s]", document.lower()):
        start = 0
        while start < len(word):
            for end in range(min(len(word), start + 6), start, -1):
                if word[start:end] in numbers:
                    found.append(numbers[word[start:end]])
                    start = end
                    break
    found = found[: length + 1]
    return torch.tensor(found + [0] * (length + 1 - len(found)))


class Documents(torch.utils.data.Dataset):
    def __init__(self):
        self.documents = [made_document() for _ in range(pool)]
        self.ready = [tokens_of(document) for document in self.documents] if arguments.fixed else None

    def __len__(self):
        return arguments.steps * batch

    def __getitem__(self, index):
        return self.ready[index % pool] if arguments.fixed else tokens_of(self.documents[index % pool])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.embedding, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("ahead", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens) + self.places.weight, mask=self.ahead, is_causal=True))


torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="bf16", cpu=not has_gpu)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=has_gpu)
loader = torch.utils.data.DataLoader(Documents(), batch_size=batch, pin_memory=has_gpu)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for tokens in loader:
    loss = functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
