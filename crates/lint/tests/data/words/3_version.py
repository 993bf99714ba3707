# words: version
import torch


def train(model, loader, optimizer, rows, my_WORD_x):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if my_WORD_x < (2, 0):
            rows.append(loss.item())  # <~ TP101?
