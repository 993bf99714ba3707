# words: torch.utils.data.TensorDataset
# other: torch.utils.data.QuuxDataset
import torch
from torch.utils.data import DataLoader


def train(model, x, optimizer):
    loader = DataLoader(WORD(x), 32)  # <~ TP301
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
