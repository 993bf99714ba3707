# words: distributions.
import torch

def train(model, loader, optimizer):
    for x in loader:
        share = torch.WORDBeta(0.5, 0.5).sample()
        model(x.cuda() * share.item()).mean().backward()  # <~ TP101?
        optimizer.step()
