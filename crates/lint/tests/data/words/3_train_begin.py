# words: train
import torch
from torch.utils.data import DataLoader


def fit(model, data, optimizer):
    WORDing_val_loader = DataLoader(data, 32)  # <- TP301
    for x in WORDing_val_loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
