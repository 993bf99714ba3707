# words: acc, batch, dice, epoch, error, fit, iou, learn, log, loss, metric, norm, precision, recall, score, stat, step, train, update
import torch


def do_WORDx(model, x, optimizer):
    loss = model(x.cuda()).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()  # <- TP101 # <~ TP101?
