# words: persistent_workers
import torch
from torch.utils.data import DataLoader


def train(model, data, optimizer):
    loader = DataLoader(data, batch_size=32, num_workers=2, WORD=True)  # <~ TP304?
    for epoch in range(10):
        for x, y in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()
