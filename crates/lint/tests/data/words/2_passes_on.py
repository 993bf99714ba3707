# words: astype, copy, detach, flatten, float, numpy, reshape, squeeze
import torch


def to_host(x):
    return x.cpu().WORD()  # <~ TP102


def train(model, loader, optimizer):
    for x, y in loader:
        x = x.cuda()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        rows = to_host(x)  # <- TP102?
