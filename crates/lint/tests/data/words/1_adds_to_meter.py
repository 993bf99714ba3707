# words: add, update
import torch

def train(model, loader, optimizer, criterion):
    losses = AverageMeter()
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        losses.WORD(loss)  # <- TP103
        loss.backward()
        optimizer.step()
