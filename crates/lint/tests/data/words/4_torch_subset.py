# words: utils.data.Subset, utils.data.dataset.Subset
import torch
from torch.utils.data import DataLoader, TensorDataset

def train(model, x, y, optimizer):
    records = torch.WORD(TensorDataset(x, y), range(100))
    loader = DataLoader(records, batch_size=8)  # <~ TP301
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
