# words: data_iter, dl
import torch


def train(model, WORD, optimizer):
    for x, y in WORD:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(y.cpu())  # <~ TP102?
