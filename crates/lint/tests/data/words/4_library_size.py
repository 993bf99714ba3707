# words: math.ceil, numpy.ceil, numpy.floor, numpy.log, numpy.prod, numpy.sqrt, os.cpu_count
# other: numpy.round
import math, numpy, os
import torch

def train(model, loader, optimizer):
    for batch in loader:
        size = WORD(batch.size(1) / 2)
        mask = torch.ones(size, size, device="cuda").triu()  # <- TP201
        loss = model(batch, mask)
        loss.backward()
        optimizer.step()
