# words: functools.partial
# other: functools.quux
import functools
import torch

def scaled(loss, factor=2):
    return loss * factor

def train(model, loader, optimizer):
    measure = WORD(scaled)
    for batch in loader:
        loss = model(batch.cuda())
        print(measure(loss))  # <- TP103
        loss.backward()
        optimizer.step()
