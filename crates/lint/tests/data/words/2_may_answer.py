# words: cond, condition, get, pop, predicate
import torch


class Flags:
    def WORD(self, x):
        return torch.relu(x.cuda().sum())


def train(model, loader, optimizer):
    flags = Flags()
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if flags.WORD(y):  # <~ TP104?
            break
