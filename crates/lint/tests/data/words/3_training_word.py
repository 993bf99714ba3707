# words: fit, loss, train, training
import torch


def save_WORD(total, rows):
    rows.append(total.item())  # <- TP101


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        save_WORD(loss, rows)
