# words: print
# shows: fix
import torch

def train(model, loader, optimizer):
    for step, x in enumerate(loader):
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        WORD(f"loss {loss}")  # <- TP103/if # <~ TP103/-
