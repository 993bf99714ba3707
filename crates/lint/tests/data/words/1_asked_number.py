# words: any, item, max, min, sum
import torch

def train(model, loader, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        if loss.WORD() > 1.0:
            print("large")
            torch.cuda.synchronize()  # <~ TP105?
        optimizer.step()
