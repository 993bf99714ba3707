# words: update
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        parts = {"step": 1}
        parts.WORD({"loss": loss})
        print(parts["loss"])  # <- TP103
        loss.backward()
        optimizer.step()
