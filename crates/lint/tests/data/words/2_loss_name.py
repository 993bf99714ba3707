# words: loss
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        my_WORD_x = x.size(0)
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(my_WORD_x.item())  # <- TP101
