# words: description, log_, logging, meter, metric, postfix, record, report, scalar, track
import torch


def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        WORDnow(loss.item())  # <- TP101 # <~ TP101?
