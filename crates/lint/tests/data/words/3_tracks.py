# words: track
# other: log
import torch


def train(model, loader, optimizer, tracker):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.WORD(loss)  # <~ TP103
