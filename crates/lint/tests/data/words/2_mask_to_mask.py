# words: data, flip, gather, index_select, movedim, repeat_interleave, roll, tile
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        x = x.cuda()
        kept = (x > 0).WORD(1)
        loss = model(x)[kept].mean()  # <- TP106
        loss.backward()
        optimizer.step()
