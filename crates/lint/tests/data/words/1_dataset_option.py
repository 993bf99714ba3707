# words: dataset
from torch.utils.data import DataLoader

def loaders(train_set, val_set):
    loader = DataLoader(train_set, batch_size=64)
    other = DataLoader(WORD=val_set, batch_size=16)  # <- TP604
    return loader, other
