# words: utils.data.random_split, utils.data.dataset.random_split
import torch
from torch.utils.data import DataLoader, TensorDataset

def train(model, x, y, optimizer):
    records, others = torch.WORD(TensorDataset(x, y), [90, 10])
    loader = DataLoader(records, batch_size=8)  # <~ TP301
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
