# words: callable, format, id, map, repr, type, str, isinstance, hasattr, len, open, print, exit, set, setattr, super, getattr
from torch import *

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        seen = WORD(loss)
        kept = seen.to("cpu")  # <~ TP102
