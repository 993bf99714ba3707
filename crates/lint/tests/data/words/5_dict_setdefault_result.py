# words: setdefault
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        optimizer.step()
        parts = {"step": 1}
        print(parts.WORD("loss", loss))  # <- TP103
