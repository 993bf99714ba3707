# words: optim
import torch


def train(model, loader, my_WORD_x):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        my_WORD_x.step()
        print(loss.item())  # <- TP101
