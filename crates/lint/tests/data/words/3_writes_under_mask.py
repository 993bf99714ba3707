# words: clamp, clip, masked_fill, masked_fill_, nan_to_num, where
import torch


def train(model, loader, optimizer, tools):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() > 9.0:  # <- TP101 # <~ TP101?
            x = tools.WORD(x, 9.0)
