# words: collate_fn
import torch
from torch.utils.data import DataLoader

def batch_of(samples):
    return torch.stack(samples).cuda()  # <- TP306?

def loaders(samples):
    return DataLoader(samples, batch_size=8, num_workers=0, WORD=batch_of)
