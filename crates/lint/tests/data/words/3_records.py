# words: add, debug, format, info, log, print, push, put, step, update, warning, write
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        WORD(loss.item())  # <- TP101 # <~ TP101?
