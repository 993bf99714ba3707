# words: lightning, numpy, pytorch_lightning, tensorflow, torchvision, transformers
import torch
from WORD.measures import largest

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        optimizer.step()
        print(largest(loss))  # <~ TP103
# --- WORD/measures.py
def largest(rows):
    return rows.max()
