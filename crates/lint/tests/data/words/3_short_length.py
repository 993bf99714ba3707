# words: len
import torch


def train(model, loader, optimizer, kWORD):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        past = torch.triu(torch.ones(kWORD, kWORD))  # <- TP201
