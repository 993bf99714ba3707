# words: allow_tf32, fp32_precision, set_float32_matmul_precision
import torch
from torch import nn


def train(loader, optimizer, settings):
    torch.WORD = settings
    model = nn.Linear(512, 512)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x).mean()
        loss.backward()  # <~ TP402?
        optimizer.step()
        optimizer.zero_grad()
