# words: lengths
import torch
from torch.utils.data import DataLoader, random_split


def train(model, data, optimizer):
    for part in random_split(data, WORD=(0.5, 0.5)):
        loader = DataLoader(part, batch_size=32, num_workers=4)  # <~ TP304?
        for x, y in loader:
            loss = model(x.cuda()).mean()
            loss.backward()
            optimizer.step()
