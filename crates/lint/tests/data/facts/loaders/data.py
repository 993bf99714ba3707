"""Loaders by helpers, by dictionaries, and by settings with their defaults."""
# about TP30

from torch.utils.data import DataLoader


def make_loaders(trainset, testset, args, **kwargs):
    train_loader = DataLoader(trainset, batch_size=8, shuffle=True, **kwargs)  # <- TP304
    test_loader = DataLoader(testset, batch_size=8, **kwargs)
    return train_loader, test_loader


def make_idle(dataset, args):
    loader = DataLoader(dataset, batch_size=8, num_workers=args.num_threads)  # <- TP301 TP302
    return loader


def make_endless(dataset):
    loader = DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True)  # <- TP304
    while True:
        yield from loader


def make_either(dataset, train):
    if train:
        return DataLoader(dataset, batch_size=8, num_workers=2)  # <- TP302
    else:
        return DataLoader(dataset, batch_size=1)


def get_test_dataloader(dataset):
    return DataLoader(dataset, batch_size=1)
