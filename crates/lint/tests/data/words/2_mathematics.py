# words: F, math, np, numpy, torch
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        total = WORD.log_(loss.item())  # <- TP101? # <~ TP101
