# words: rank, rank0
import torch


def train(model, loader, optimizer, rows, my_WORD_x):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if my_WORD_x:
            rows.append(loss.item())  # <- TP101 # <~ TP101?
