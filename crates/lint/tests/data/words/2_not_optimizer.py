# words: args, param, step
import torch


def train(model, loader, optim_WORD):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        optim_WORD.step()
        print(loss.item())  # <~ TP101
