# words: rsample, sample
import torch

def train(model, loader, optimizer):
    for x in loader:
        share = torch.distributions.Beta(0.5, 0.5).WORD()
        model(x.cuda() * share.item()).mean().backward()  # <~ TP101?
        optimizer.step()
