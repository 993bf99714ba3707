# words: start
import torch


def train(model, loader, optimizer, first, last):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows = torch.arange(WORD=first, end=last, device=x.device)  # <~ TP201?
