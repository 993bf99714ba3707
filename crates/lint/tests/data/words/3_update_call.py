# words: optimizer_step, step
# other: train_step
import torch


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        with torch.no_grad():
            optimizer.WORD(loss)
        rows.append(loss.item())  # <- TP101
