# words: ndim, shape
import torch

def train(model, loader, optimizer, other):
    for batch in loader:
        loss = model(batch.cuda())
        size = other.WORD.item()  # <~ TP101
        loss.backward()
        optimizer.step()
