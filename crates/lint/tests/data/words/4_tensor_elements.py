# words: values, tuple
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        if not loss.WORD():  # <~ TP104?
            continue
        optimizer.step()
