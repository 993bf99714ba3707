"""Targets and noise of a GAN, by the type that was chosen for the device."""
# about TP2

import numpy as np
import torch
from torch.autograd import Variable

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


def penalty(critic, real):
    mixing = Tensor(np.random.random((real.size(0), 1)))  # <- TP203
    ones = Variable(Tensor(real.shape[0], 1).fill_(1.0), requires_grad=False)  # <- TP201
    return torch.autograd.grad(critic(mixing * real), real, grad_outputs=ones)[0].norm()


def run(generator, critic, loader, criterion, optimizer):
    fixed = Variable(Tensor(64, 1).fill_(1.0))
    for real in loader:
        real = real.cuda()
        valid = Variable(Tensor(real.shape[0], 1).fill_(1.0), requires_grad=False)  # <- TP201
        noise = Variable(Tensor(np.random.normal(0, 1, (real.shape[0], 100))))  # <- TP203
        labels = torch.ones(real.shape[0], device=real.device)  # <- TP201
        hot = torch.zeros(real.shape[0], 10, device=real.device).scatter_(1, real.argmax(1, keepdim=True), 1.0)
        total = torch.zeros(1, device=real.device) + hot.sum()
        total = total + criterion(critic(generator(noise)), valid) + penalty(critic, real) + labels.sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return fixed
