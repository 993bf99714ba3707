# words: train
import torch


def gradients(model, loader, rows):
    model.eval()
    rows.append(model.describe())
    model.WORD()
    for x in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        rows.append(loss.item())  # <- TP101
