# words: cpu
import torch

def train(model, loader, optimizer, other):
    for batch in loader:
        loss = model(batch.cuda())
        part = other.WORD()
        count = part.item()  # <~ TP101
        loss.backward()
        optimizer.step()
