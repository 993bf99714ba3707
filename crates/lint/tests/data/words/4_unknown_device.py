# words: to, cuda
import torch

def train(model, loader, optimizer, other):
    for batch in loader:
        loss = model(batch.cuda())
        part = other.WORD("cuda")
        print(part)  # <- TP103
        loss.backward()
        optimizer.step()
