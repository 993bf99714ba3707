# words: channels_last, channels_last_3d
import torch
from torch import nn


def train(loader, optimizer):
    model = nn.Conv2d(3, 64, 3)
    for x, y in loader:
        x = x.to("cuda", memory_format=torch.WORD)
        with torch.autocast("cuda"):
            loss = model(x).mean()
        loss.backward()  # <~ TP408?
        optimizer.step()
        optimizer.zero_grad()
