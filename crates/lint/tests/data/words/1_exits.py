# words: exit, os._exit, quit, sys.exit
import os
import sys
import torch

def train(model, loader, optimizer, state):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        if state.done:
            torch.cuda.synchronize()  # <~ TP105?
            WORD(1)
