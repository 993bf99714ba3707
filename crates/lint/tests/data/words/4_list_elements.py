# words: copy, pop
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        losses = [loss].WORD()
        print(losses)  # <- TP103
        loss.backward()
        optimizer.step()
