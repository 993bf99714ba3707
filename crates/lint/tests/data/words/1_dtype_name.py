# words: dtype
import torch

def mask_of(n, my_WORD):
    return torch.full((n, n), 0, my_WORD, device="cuda")  # <- TP201

def train(model, loader, optimizer, kind):
    for x in loader:
        model(x.cuda(), mask_of(x.size(1), kind)).mean().backward()
        optimizer.step()
