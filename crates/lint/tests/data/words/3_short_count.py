# words: b, k, n, t
# other: j
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        WORD = x.shape[0]
        if WORD == 1:
            rows.append(loss.item())  # <- TP101?
