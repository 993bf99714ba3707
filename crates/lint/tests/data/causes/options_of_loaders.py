"""Loaders by what scripts tell them: flags, dictionaries, several at once."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--workers", default=4, type=int)
args = parser.parse_args()
use_cuda = torch.cuda.is_available()


class Pictures(Dataset):
    def __getitem__(self, index):
        return torch.load(f"{index}.pt")

    def __len__(self):
        return 1000


def pinned_on_a_device(model, criterion, optimizer):
    loader = DataLoader(Pictures(), num_workers=args.workers, pin_memory=torch.cuda.is_available())
    for _ in range(10):
        for x, y in loader:
            loss = criterion(model(x.cuda()), y.cuda(non_blocking=True))  # <- TP303
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def pinned_by_a_flag(model, criterion, optimizer):
    pin_memory = False
    if use_cuda:
        pin_memory = True
    loader = DataLoader(Pictures(), num_workers=4, pin_memory=pin_memory, persistent_workers=True)
    for x, y in loader:
        loss = criterion(model(x.to("cuda:0")), y.to("cuda:0", non_blocking=True))  # <- TP303
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rows_in_memory(model, criterion, optimizer, x, y):
    loader = DataLoader(TensorDataset(x, y), batch_size=64, pin_memory=True)
    for rows, targets in loader:
        loss = criterion(model(rows.cuda(non_blocking=True)), targets.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def frozen_below(encoder, head, criterion, optimizer):
    loader = DataLoader(Pictures(), num_workers=4, pin_memory=True, persistent_workers=True)
    encoder.eval()
    for x, y in loader:
        with torch.no_grad():
            features = encoder(x.cuda())  # <- TP303
        loss = criterion(head(features), y.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def features_once(encoder):
    loader = DataLoader(Pictures(), num_workers=4, pin_memory=True)
    kept = []
    for x, _ in loader:
        x = x.cuda()
        with torch.no_grad():
            kept.append(encoder(x))
    return kept
