# words: average, build, create, draw, estimate, eval, init, load, log, make, parse, plot, print, record, reduce, register, save, setup, show, sync, test, track, train, update, val, write
import torch


def train(model, loader, optimizer, tools, writer):
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", tools.WORD_loss())  # <~ TP103
