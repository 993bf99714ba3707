# words: _opt
import torch


def train(model, loader, quuxWORD):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        quuxWORD.step()
        print(loss.item())  # <- TP101
