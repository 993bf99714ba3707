# words: cuda.
import torch

def train(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        scale = torch.WORDFloatTensor([1.0, 2.0])
        print(float(scale.sum()))  # <- TP101
