# words: batch_size
from torch.utils.data import DataLoader

def loaders(train_set, val_set):
    train_loader = DataLoader(train_set, batch_size=64)
    val_loader = DataLoader(val_set, WORD=16)  # <- TP604
    return train_loader, val_loader
