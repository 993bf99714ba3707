# words: synchronize
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.WORD()
        rows.append(loss.item())  # <- TP101? # <~ TP101
