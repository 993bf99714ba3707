# words: ndim, shape, size
import numpy
import torch

def train(model, loader, optimizer, rows):
    rows = numpy.asarray(rows)
    for batch in loader:
        mask = torch.ones(rows.WORD, rows.WORD).triu().cuda()  # <- TP201
        loss = model(batch.cuda(), mask)
        loss.backward()
        optimizer.step()
