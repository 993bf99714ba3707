# words: copy
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        parts = {"loss": loss}.WORD()
        print(parts["loss"])  # <- TP103
        loss.backward()
        optimizer.step()
