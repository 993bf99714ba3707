# words: zero_, fill_
import torch

def train(model, loader, optimizer):
    for batch in loader:
        mask = torch.empty(64, 64, device="cuda").WORD()
        mask = mask.triu()  # <- TP201
        loss = model(batch, mask)
        loss.backward()
        optimizer.step()
