# words: detach, detach_
import torch

def train(model, loader, optimizer):
    total = 0
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        total += loss.WORD()  # <~ TP205
        optimizer.step()
    return total
