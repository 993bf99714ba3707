# words: cpu
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        print(loss.WORD())  # <~ TP103
        optimizer.step()
