# words: _args, _cfg, _config
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        past = torch.triu(torch.ones(runWORD.reach, runWORD.reach))  # <- TP201
