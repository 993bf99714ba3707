# words: item, mean, std, sum, tolist
import numpy
import torch

def train(model, loader, optimizer, rows):
    last = numpy.asarray(rows).WORD()
    for batch in loader:
        print(last)  # <- TP103
        loss = model(batch.cuda())
        last = loss
        loss.backward()
        optimizer.step()
