# words: cpu, detach, get_last_lr, get_scale, item, items, keys, max, mean, min, norm, numpy, sum, tolist
# shows: fix
import torch

def train(model, loader, optimizer, found):
    for step, x in enumerate(loader):
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss, found.WORD())  # <- TP103/if # <~ TP103/-
