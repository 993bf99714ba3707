# words: metric_logger, meter
import torch


def train(model, loader, optimizer, WORD):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        WORD.update(loss=loss)  # <- TP103
