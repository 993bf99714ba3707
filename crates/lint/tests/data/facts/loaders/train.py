"""Who goes over which loader, and what is copied from it."""
# about TP30

import torch
from data import make_endless, make_idle, make_loaders
from options import options
from torch.utils.data import DataLoader
from tqdm import tqdm


class Runner:
    def __init__(self, model, optimizer, train_data, test_data):
        self.model, self.optimizer = model, optimizer
        self.train_data, self.test_data = train_data, test_data

    def train(self, epoch):
        self.iterate(epoch, self.train_data)

    def test(self, epoch):
        self.iterate(epoch, self.test_data, learns=False)

    def iterate(self, epoch, loader, learns=True):
        passes = tqdm(enumerate(loader), total=len(loader))
        for step, batch in passes:
            loss = self.model(batch.cuda()).mean()
            if learns:
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


def run(model, optimizer, trainset, testset, device):
    args = options()
    kwargs = {"num_workers": args.workers, "pin_memory": True}
    train_loader, test_loader = make_loaders(trainset, testset, args, **kwargs)
    for epoch in range(args.epochs):
        for images, views in train_loader:
            both = torch.cat([images, views]).to(device)
            images = images.to(device)  # <- TP303
            loss = model(images).mean() + both.mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        check(model, test_loader, device)
    for batch in make_idle(trainset, args):
        model(batch.cuda()).mean().backward()
        optimizer.step()
    endless = make_endless(trainset)
    for step in range(1000):
        model(next(endless).cuda(non_blocking=True)).mean().backward()
        optimizer.step()


def run_twice(model, optimizer, trainset, valset, args):
    dataloader = DataLoader(trainset, batch_size=8, num_workers=int(args.workers))  # <- TP302 TP304
    valDataLoader = DataLoader(valset, batch_size=8, num_workers=int(args.workers))
    runner = Runner(model, optimizer, dataloader, valDataLoader)
    for epoch in range(args.epochs):
        runner.train(epoch)
        runner.test(epoch)


@torch.no_grad()
def check(model, loader, device):
    for images, _ in loader:
        model(images.to(device))


def one_epoch(model, loader, optimizer):
    batches = iter(loader)
    for step in range(len(loader)):
        model(next(batches).cuda(non_blocking=True)).mean().backward()
        optimizer.step()


def run_by_hand(model, optimizer, trainset, epochs):
    loader = DataLoader(trainset, num_workers=2, pin_memory=True)  # <- TP304
    for epoch in range(epochs):
        one_epoch(model, loader, optimizer)


class Paired(DataLoader):
    def __init__(self, dataset, pairs, num_workers=0, pin_memory=False):
        super().__init__(dataset, batch_size=2 * pairs, num_workers=num_workers, pin_memory=pin_memory)


def run_paired(model, optimizer, trainset):
    loader = Paired(trainset, 4, num_workers=2)  # <- TP302
    for batch in loader:
        model(batch.cuda()).mean().backward()
        optimizer.step()
