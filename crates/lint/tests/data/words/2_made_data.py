# words: batch, batche, data, dataloader, dataset, loader
import torch
from torch.utils.data import DataLoader


def sample_WORDs(data):
    loader = DataLoader(data, batch_size=32, num_workers=4)  # <- TP302?
    while True:
        yield from loader


def train(model, data, optimizer):
    for x, y in sample_WORDs(data):
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
