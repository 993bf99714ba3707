# words: epoch, global_step, iteration, step
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss, WORD = model(x.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append(WORD.item())  # <~ TP101
