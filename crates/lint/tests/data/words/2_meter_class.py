# words: Meter
import torch
from library import AverageWORD


def train(model, loader, optimizer):
    average = AverageWORD()
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        average.update(loss)  # <- TP103
