# words: grad
import torch

def train(model, loader, optimizer, other):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        print(other.WORD)  # <- TP103
        optimizer.step()
