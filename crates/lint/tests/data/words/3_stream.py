# words: stream
import torch


def train(model, loader, optimizer, side, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.cuda.WORD(side):
            rows.append(loss.item())  # <- TP101? # <~ TP101
