# words: Path, bool, device, dtype, float, generic, int, ndarray, str, Module, Optimizer, DataLoader
import torch

def train(model, loader, optimizer, part: WORD):
    for batch in loader:
        loss = model(batch.cuda())
        size = part.item()  # <~ TP101
        loss.backward()
        optimizer.step()
