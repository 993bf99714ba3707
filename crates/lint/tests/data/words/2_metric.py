# words: metric, metrics
import torch


def train(model, loader, optimizer):
    for batch in loader:
        loss, seen = model.loss_and_WORD(batch.cuda())
        loss.backward()
        optimizer.step()
        print(f"seen {seen}")  # <~ TP103
