# words: error, info, print, warn, warning
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.max() > 5.0:
            WORD("large")
            rows.append(loss.item())  # <~ TP101?
