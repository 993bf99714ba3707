# words: compile
import torch


def train(model, loader, optimizer):
    model = torch.WORD(model)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x, y).mean()
        loss.backward()  # <~ TP404?
        optimizer.step()
        optimizer.zero_grad()
