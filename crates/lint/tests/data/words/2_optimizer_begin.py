# words: opt_
import torch


def train(model, loader, WORDquux):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        WORDquux.step()
        print(loss.item())  # <- TP101
