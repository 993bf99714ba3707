# words: num_workers
import torch
from torch.utils.data import DataLoader


def train(model, data, optimizer):
    loader = DataLoader(data, 32, WORD=4)  # <~ TP301
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
