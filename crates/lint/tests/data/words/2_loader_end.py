# words: _dl, _iterator, loader, loaders
import torch


def train(model, quuxWORD, optimizer):
    for x, y in quuxWORD:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(y.cpu())  # <~ TP102?
