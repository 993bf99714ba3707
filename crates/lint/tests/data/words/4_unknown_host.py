# words: dim, item, items, named_parameters, numel, numpy, parameters, size
import torch

def train(model, loader, optimizer, other):
    for batch in loader:
        loss = model(batch.cuda())
        part = other.WORD(loss)
        count = part.tolist()  # <~ TP102
        loss.backward()
        optimizer.step()
