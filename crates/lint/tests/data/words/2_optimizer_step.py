# words: optimizer_step
import torch


def train(model, loader, engine):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        engine.WORD(loss)
        print(loss.item())  # <- TP101
