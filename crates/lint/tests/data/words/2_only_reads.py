# words: cpu, detach, item, mean, numpy, sum, tolist
import torch


def probe(model, x):
    total = model(x).sum()
    model.eval()
    return total.item(), x.WORD()  # <- TP101


def train(model, loader, optimizer):
    for x, y in loader:
        x = x.cuda()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        probe(model, x)
