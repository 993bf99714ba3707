# words: generate, sample
# other: evaluate
from torch.utils.data import DataLoader

def loaders(images):
    return DataLoader(images, batch_size=64)

def WORD_batches(images):
    return DataLoader(images, batch_size=16)  # <~ TP604
