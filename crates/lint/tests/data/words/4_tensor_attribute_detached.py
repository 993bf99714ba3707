# words: data, grad
import torch

def train(model, loader, optimizer):
    total = 0
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        total = loss.WORD + total
        print(total)  # <- TP103
        optimizer.step()
    return total
