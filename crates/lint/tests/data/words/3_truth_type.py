# words: bool
# other: long
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        chosen = torch.ones(8, dtype=torch.WORD, device=x.device)
        rows.append(loss[chosen])  # <- TP106
