# words: LooseVersion, version.parse
import torch


def train(model, loader, optimizer, rows, tools, release, needed):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if tools.WORD(release) < needed:
            rows.append(loss.item())  # <~ TP101?
