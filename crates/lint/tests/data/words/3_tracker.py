# words: tracker
import torch


def train(model, loader, optimizer, my_WORD_x):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        my_WORD_x.track(loss)  # <~ TP103
