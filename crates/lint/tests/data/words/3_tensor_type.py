# words: Tensor
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(loss, torch.WORD):
            rows.append(loss.item())  # <- TP101 # <~ TP101?
