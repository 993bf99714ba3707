# words: exists
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = WORD(loss)
        rows.append(found.item())  # <~ TP101
