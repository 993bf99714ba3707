# words: format, join
# shows: fix
import torch

def train(model, loader, optimizer, names):
    for step, x in enumerate(loader):
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss, "{} ".WORD(names))  # <- TP103/if # <~ TP103/-
