# words: should_
import torch

def train(model, loader, optimizer, WORDspeak):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if WORDspeak:
            print(loss.item())  # <~ TP101?
