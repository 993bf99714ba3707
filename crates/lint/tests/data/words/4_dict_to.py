# words: to
import torch

def train(model, optimizer, loader, data):
    for images in loader:
        batch = {"images": images}.WORD("cuda")
        print(batch["images"])  # <- TP103
        loss = model(batch)
        loss.backward()
        optimizer.step()
