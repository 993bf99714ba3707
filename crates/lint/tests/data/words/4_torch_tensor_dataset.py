# words: utils.data.TensorDataset, utils.data.dataset.TensorDataset
# other: utils.data.quux
import torch
from torch.utils.data import DataLoader

def train(model, x, y, optimizer):
    records = torch.WORD(x, y)
    loader = DataLoader(records, batch_size=8)  # <~ TP301
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
