# words: AttrDict, ConfigDict, EasyDict, HParams, Namespace, SimpleNamespace, edict
import torch

hps = WORD(show=False)


def train(model, loader, optimizer, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if hps.show:
            rows.append(loss.item())  # <~ TP101?
