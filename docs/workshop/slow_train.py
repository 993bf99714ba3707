"""A small language model, trained the way people write a loop in a hurry. Its faults are the exercise."""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCAB, DIM, HEADS, LAYERS, SEQ, BATCH, STEPS = 96, 64, 4, 3, 64, 16, 200
device = "cuda" if torch.cuda.is_available() else "cpu"


class Lines(Dataset):
    """Windows of a made-up text; the whole text is encoded again for every window."""

    def __init__(self, size=4096):
        words = ["kernel", "launch", "stream", "stride", "warp", "tile", "cache", "queue"]
        self.text = " ".join(words[(i * i + 3 * i) % 8] for i in range(1200))
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        codes = torch.tensor(list(self.text.encode())) - 32
        start = index * 7 % (len(codes) - SEQ - 1)
        return codes[start : start + SEQ], codes[start + 1 : start + SEQ + 1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, s, d = x.shape
        h = self.norm1(x)
        q = self.q(h).view(b, s, HEADS, d // HEADS).transpose(1, 2)
        k = self.k(h).view(b, s, HEADS, d // HEADS).transpose(1, 2)
        v = self.v(h).view(b, s, HEADS, d // HEADS).transpose(1, 2)
        mask = torch.triu(torch.ones(s, s, device=x.device), diagonal=1).bool()
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // HEADS)
        scores = scores.masked_fill(mask, float("-inf"))
        mixed = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(b, s, d)
        x = x + self.out(mixed)
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # Leaves the other cores to their users.
    loader = DataLoader(Lines(), batch_size=BATCH, shuffle=True)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    total, start = 0.0, time.time()
    for step, (inputs, targets) in enumerate(loader):
        if step == STEPS:
            break
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad(set_to_none=False)
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))
        loss.backward()
        norms = {}
        for name, parameter in model.named_parameters():
            norms[name] = parameter.grad.norm().item()
        optimizer.step()
        total += loss.item()
        if step % 10 == 0:
            speed = (step + 1) / (time.time() - start)
            print(f"step {step} loss {total / (step + 1):.4f} {speed:.1f} steps/s largest {max(norms, key=norms.get)}")


if __name__ == "__main__":
    train()
