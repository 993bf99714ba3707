# words: adam, adamw, opt, sgd
import torch


def train(model, loader, WORD):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        WORD.step()
        print(loss.item())  # <- TP101
