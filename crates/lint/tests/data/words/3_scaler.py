# words: scaler
import torch


def train(model, loader, optimizer, loss_WORD, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        loss_WORD(loss, optimizer)
        rows.append(loss.item())  # <- TP101
