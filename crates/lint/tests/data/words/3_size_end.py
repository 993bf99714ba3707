# words: _len, _length, _size
import torch


def train(model, loader, optimizer, chunkWORD):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        past = torch.triu(torch.ones(chunkWORD, chunkWORD))  # <- TP201
