# words: get, pop, values, items
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        parts = {"loss": loss}
        print(parts.WORD("loss"))  # <- TP103
        loss.backward()
        optimizer.step()
