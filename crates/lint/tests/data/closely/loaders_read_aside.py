"""Loaders whose own loop trains nothing, or whose samples are on the device already."""

import torch
from torch.utils.data import DataLoader, Dataset


class Near(Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index]).cuda()


class Far(Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index]).cuda()


def mean_of(samples):
    loader = DataLoader(samples, batch_size=1, num_workers=2)
    total = torch.zeros(3)
    for images in loader:
        total += images.mean()
    return total


def choose(name):
    if name == "near":
        chosen = Near()
    else:
        chosen = Far()
    return DataLoader(chosen, batch_size=8, shuffle=True)


def kept(path):
    rows = torch.load(path)
    return DataLoader(rows, batch_size=8, shuffle=True)  # <- TP302


if __name__ == "__main__":
    trial = DataLoader(Near(), batch_size=2)
    for batch in trial:
        print(batch.shape)
