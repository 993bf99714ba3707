# words: device
import torch

def train(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        noise = torch.randn(8, WORD="cuda")
        print(float(noise.sum()))  # <- TP101
