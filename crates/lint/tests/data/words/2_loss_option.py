# words: loss
import torch


def train(model, loader, optimizer, hub):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        hub.post_progress(WORD=loss.item())  # <- TP101 # <~ TP101?
