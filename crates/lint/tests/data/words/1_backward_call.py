# words: backward, manual_backward
import torch

def train(model, loader, engine):
    for x in loader:
        loss = model(x.cuda()).mean()
        engine.WORD(loss)  # <- TP404?
        print(loss.item())  # <- TP101
