"""A recurrent translator whose decoder takes the known words one by one. Fixed: the whole sentence in one call."""
import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
width, vocabulary, batch, length = (32, 256, 4, 8) if arguments.small else (1024, 4096, 128, 64)
torch.set_float32_matmul_precision("high")


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.recurrent = nn.GRU(width, width // 2, 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(width, width)

    def forward(self, words):
        outputs, _ = self.recurrent(self.embedding(words))
        return outputs, torch.tanh(self.bridge(outputs.mean(1)))[None]


class Decoder(nn.Module):
    """A step looks back at the encoder's outputs and scores the next word."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.merge, self.head = nn.Linear(2 * width, width), nn.Linear(width, vocabulary)

    def forward(self, words, hidden, memory):
        outputs, hidden = self.recurrent(self.embedding(words), hidden)
        weights = functional.softmax(torch.bmm(outputs, memory.transpose(1, 2)) / width**0.5, dim=-1)
        context = torch.bmm(weights, memory)
        return self.head(torch.tanh(self.merge(torch.cat([outputs, context], dim=-1)))), hidden


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, target):
        memory, hidden = self.encoder(source)
        if arguments.fixed:
            # Teacher forcing: every word the decoder is given is known beforehand.
            return self.decoder(target, hidden, memory)[0]
        scores = []
        for place in range(target.shape[1]):
            score, hidden = self.decoder(target[:, place : place + 1], hidden, memory)
            scores.append(score)
        return torch.cat(scores, dim=1)


torch.manual_seed(0)
model = Translator().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=has_gpu)
sources = torch.randint(0, vocabulary, (4, batch, length), device=device)
targets = torch.randint(0, vocabulary, (4, batch, length + 1), device=device)
for step in range(arguments.steps):
    target = targets[step % 4]
    scores = model(sources[step % 4], target[:, :-1])
    loss = functional.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
