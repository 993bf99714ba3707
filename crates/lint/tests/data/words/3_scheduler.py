# words: scheduler
import torch


def train(model, loader, optimizer, rows, noise_WORD):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append(noise_WORD.cpu())  # <~ TP102?
