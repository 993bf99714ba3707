# words: extend
import torch

def train(model, loader, optimizer):
    for batch in loader:
        losses = []
        loss = model(batch.cuda())
        losses.WORD([loss])
        print(losses)  # <- TP103
        loss.backward()
        optimizer.step()
