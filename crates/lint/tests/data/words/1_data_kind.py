# words: data, loader, set
from torch.utils.data import DataLoader

def loaders(images, others):
    train_loader = DataLoader(images, batch_size=64)
    cv_myWORDx = DataLoader(others, batch_size=16)  # <- TP604
    return train_loader, cv_myWORDx
