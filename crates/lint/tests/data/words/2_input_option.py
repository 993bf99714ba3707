# words: input
import torch


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        start = torch.zeros_like(WORD=y)
        loss.backward()
        optimizer.step()
        print(start.mean().item())  # <~ TP101
