# words: Tensor
import torch

def train(model, loader, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        if isinstance(loss, torch.FloatWORD) and loss > 5:  # <- TP104?
            print("large")
