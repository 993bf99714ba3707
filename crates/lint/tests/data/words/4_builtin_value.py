# words: all, any, bool, callable, dict, enumerate, filter, float, format, hasattr, int, isinstance, iter, len, list, map, range, repr, reversed, set, sorted, str, tuple, type, zip
import torch

def train(model, loader, optimizer, rows):
    for batch in loader:
        loss = model(batch.cuda())
        part = WORD(rows, rows)
        count = part.item()  # <~ TP101
        loss.backward()
        optimizer.step()
