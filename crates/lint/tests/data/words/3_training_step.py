# words: train_batch, train_step, training_step
import torch


def WORD(model, x, rows):
    loss = model(x.cuda()).sum()
    rows.append(loss.item())  # <- TP101
    return loss
