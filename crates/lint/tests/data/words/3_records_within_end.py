# words: _log
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        runWORD(loss.item())  # <- TP101 # <~ TP101?
