# words: load, next, open, read, reload
import torch


def WORD_shard(x):
    return x.sum().item()  # <~ TP101


def train(model, loader, optimizer):
    for x, y in loader:
        x = x.cuda()
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        total = WORD_shard(x)
