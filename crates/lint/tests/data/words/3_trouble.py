# words: critical, error, exit, info, print, warn, warning
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() > 9.0:  # <- TP101 # <~ TP101?
            WORD("large")
            loss = loss.clamp(max=9.0)
