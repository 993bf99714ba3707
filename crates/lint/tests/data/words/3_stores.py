# words: append, dict, extend
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.WORD(loss.item())  # <- TP101 # <~ TP101?
