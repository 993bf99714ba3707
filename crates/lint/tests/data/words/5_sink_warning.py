# words: warning
# shows: fix
import torch
from logging import WORD

def train(model, loader, optimizer):
    for step, x in enumerate(loader):
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        WORD(f"loss {loss}")  # <- TP103/if # <~ TP103/-
