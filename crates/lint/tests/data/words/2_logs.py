# words: debug, info, log, print, track
import torch


def train(model, loader, optimizer, run):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        run.WORD({"loss": loss})  # <- TP103
