# words: benchmark
from torch.utils.data import DataLoader

def loaders(images):
    return DataLoader(images, batch_size=64)

def my_WORD_x(images):
    return DataLoader(images, batch_size=16)  # <- TP604?
