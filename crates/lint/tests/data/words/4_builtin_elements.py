# words: iter, list, reversed, set, sorted, tuple
import torch

def train(model, loader, optimizer):
    for batch in loader:
        losses = [model(batch.cuda())]
        for part in WORD(losses):
            print(part)  # <- TP103
        sum(losses).backward()
        optimizer.step()
