"""Helpers that move what they are handed, flags that speak of a device, and what a step does after `model.eval()`."""
# about TP101 TP102 TP104 TP106 TP202 TP203

import numpy as np
import torch
from torch import nn


def to_var(x):
    if torch.cuda.is_available():
        x = x.cuda()
    return x


def to_tensor(array, cuda=True):
    tensor = torch.from_numpy(array)  # <- TP203
    if cuda:
        tensor = tensor.cuda()
    return tensor


def eval_metrics(output, target):
    right = (output.argmax(-1) == target).sum()
    return right.cpu().numpy()  # <- TP102


class Pairs(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.mask = self.pairs(n)
        self.table = torch.linspace(0, 1, n)
        self.offsets = np.zeros(n)

    def pairs(self, n):
        mask = torch.ones((n, n), dtype=bool)
        return mask.fill_diagonal_(0)

    def forward(self, x, y, kept, wanted):
        n = x.shape[0]
        if n != 1:
            raise ValueError("one at a time")
        z = to_var(torch.randn(n, 8))  # <- TP202
        z = z + self.table.to(x.device)  # <- TP202
        z = z + x.new_tensor(self.offsets)  # <- TP203
        drop = torch.rand(n) < self.rate  # <- TP202
        z = z * drop.cuda()
        z = z + torch.zeros(n, 8).type(x.type())  # <- TP202
        scores = x @ x.transpose(-2, -1)
        loss = scores[self.mask].mean() + nn.functional.softmax(z, -1)[kept != wanted].mean()  # <- TP106
        count = (y > 0).sum().float()
        return loss / max(count, 1)  # <- TP104


class Trainer:
    def __init__(self, model, use_cuda=False):
        self.model = model
        self.use_cuda = use_cuda

    def penalty(self, real):
        alpha = torch.rand(real.size(0), 1)  # <- TP202
        if self.use_cuda:
            alpha = alpha.cuda()
        return alpha * real.cuda()

    def train(self, loader, optimizer):
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            output = self.model(x, y, y, y) + self.penalty(x).mean()
            target = to_tensor(np.asarray(loader.targets))  # <- TP203
            loss = (output - target).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            eval_metrics(output, y)
            self.model.eval()
            print(loss.item())  # <- TP101
            self.model.train(True)


def tune(student, reference, loader, optimizer):
    reference.eval()
    for x in loader:
        loss = (student(x.cuda()) - reference(x.cuda())).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())  # <- TP101


def main(loader):
    trainer = Trainer(Pairs(8).cuda(), use_cuda=True)
    trainer.train(loader, torch.optim.SGD(trainer.model.parameters(), lr=0.1))
    tune(Pairs(8).cuda(), Pairs(8).cuda(), loader, torch.optim.SGD(trainer.model.parameters(), lr=0.1))
