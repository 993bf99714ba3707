# words: mean, sum
import torch

def train(model, loader, optimizer, state):
    for x in loader:
        model(x.cuda())
        loss = state.pop("losses")
        print(f"{loss}")  # <- TP103
        loss.WORD().backward()
        optimizer.step()
