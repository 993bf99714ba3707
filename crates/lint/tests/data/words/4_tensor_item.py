# words: item
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = loss.WORD()  # <- TP101
        optimizer.step()
