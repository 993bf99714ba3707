# words: step
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model.run(x.cuda())
        optimizer.WORD()
        rows.append(loss.item())  # <- TP101
