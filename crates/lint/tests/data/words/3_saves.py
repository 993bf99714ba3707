# words: debug, download, dump, export, save, upload, warmup
import torch


def WORD_numbers(total, rows):
    rows.append(total.item())  # <~ TP101


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        WORD_numbers(loss, rows)
