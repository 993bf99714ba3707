# words: oom
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        had_WORD = model.failed
        if had_WORD:
            print(loss.item())  # <~ TP101?
