# words: setdefault
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        optimizer.step()
        parts = {"step": 1}
        parts.WORD("loss", loss)
        print(parts["loss"])  # <- TP103
