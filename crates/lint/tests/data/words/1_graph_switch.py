# words: set_grad_enabled
import torch

def train(model, loader, optimizer, batches):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        with torch.WORD(False):
            for other in batches:
                print(model(other).mean().item())  # <~ TP101
