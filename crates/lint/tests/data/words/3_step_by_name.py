# words: optimize_parameters, train_batch, train_iter, train_step, training_step
import torch


def train(engine, loader, rows):
    for x in loader:
        loss = engine.WORD(x.cuda())
        rows.append(loss.item())  # <- TP101
