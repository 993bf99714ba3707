# words: cv
from torch.utils.data import DataLoader

def loaders(images, others):
    train_loader = DataLoader(images, batch_size=64)
    WORD_loader = DataLoader(others, batch_size=16)  # <- TP604
    return train_loader, WORD_loader
