# words: backward(
# other: quux(
import torch
from tools import loader, model, rows


def own_loss(x):
    rows.append(x.sum().item())
    return x.mean()


first = own_loss(torch.ones(8, device="cuda"))
for x in loader:
    loss = model(x.cuda()).sum()
    loss.WORD)
    rows.append(loss.item())  # <- TP101
