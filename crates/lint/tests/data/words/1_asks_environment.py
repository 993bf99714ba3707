# words: environ.get
import os
import torch

def train(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        if os.WORD("TIMING"):
            torch.cuda.synchronize()  # <~ TP105?
