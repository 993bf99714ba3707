# words: builtins
import WORD

import torch
from torch.utils.data import DataLoader


def train(model, data, optimizer):
    loader = DataLoader(data, batch_size=32, num_workers=2)  # <- TP302?
    batches = WORD.iter(loader)
    for step in range(1000):
        x, y = WORD.next(batches)
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in loader:
            model(x.cuda())
