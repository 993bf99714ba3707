# words: batch, data
import torch

@torch.no_grad()
def spread(model, my_WORD_x):
    largest = 0
    for x in my_WORD_x:
        largest = max(largest, model(x).mean().item())  # <~ TP101
    return largest

def train(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        spread(model, x.cuda())
