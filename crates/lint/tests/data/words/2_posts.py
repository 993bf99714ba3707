# words: post
import torch


def train(model, loader, optimizer, hub):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        hub.my_WORD_x(loss=loss.item())  # <- TP101 # <~ TP101?
