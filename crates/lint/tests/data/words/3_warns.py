# words: critical, error, exception, warn, warning, warning_once
import torch


def train(model, loader, optimizer, log):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.WORD(loss.item())  # <~ TP101?
