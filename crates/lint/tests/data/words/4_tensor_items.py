# words: items
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        for name, part in loss.WORD():
            print(name)  # <~ TP103
        optimizer.step()
