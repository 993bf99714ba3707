# words: fill_
import torch

def train(model, loader, optimizer):
    for batch in loader:
        start = torch.empty(4, 8, device="cuda").WORD(1)  # <- TP201?
        loss = model(batch, start)
        loss.backward()
        optimizer.step()
