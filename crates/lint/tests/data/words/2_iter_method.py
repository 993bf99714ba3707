# words: __iter__
import torch
from torch.utils.data import DataLoader


class Batches:
    def __init__(self, data):
        self.loader = DataLoader(data, batch_size=32, num_workers=2)  # <- TP304?

    def WORD(self):
        return iter(self.loader)


def train(model, data, optimizer):
    batches = Batches(data)
    for epoch in range(10):
        for x, y in batches:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()
