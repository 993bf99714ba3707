# words: amp, bf16, enable_amp, fp16, fp16_run, half_precision, mixed_precision, use_amp, use_bf16, use_fp16, use_mixed_precision
import torch
from torch import nn


def train(loader, optimizer, WORD=False):
    model = nn.Linear(512, 512)
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = model(x).mean()
        loss.backward()  # <- TP402?
        optimizer.step()
        optimizer.zero_grad()
