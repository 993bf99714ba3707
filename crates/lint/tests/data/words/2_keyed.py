# words: batch, data, input, loader, output, result, sample
import torch


def train(model, loader, optimizer):
    for step, rows in enumerate(loader):
        my_WORD = rows
        loss = model(rows["image"].cuda()).mean()
        loss.backward()
        optimizer.step()
        if "test" in my_WORD:
            print(loss.item())  # <- TP101?
