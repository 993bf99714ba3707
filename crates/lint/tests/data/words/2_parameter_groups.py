# words: param_groups
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        for group in optimizer.WORD:
            for p in group["params"]:
                print(p.grad.norm().item())  # <- TP107 # <~ TP101
        optimizer.step()
