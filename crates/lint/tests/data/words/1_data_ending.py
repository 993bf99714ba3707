# words: data, dataloader, dataset, dl, ds, iter, iterator, loader, set
from torch.utils.data import DataLoader

def loaders(images, others):
    train_loader = DataLoader(images, batch_size=64)
    valWORD = DataLoader(others, batch_size=16)  # <- TP604
    return train_loader, valWORD
