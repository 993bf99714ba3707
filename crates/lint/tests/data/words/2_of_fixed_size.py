# words: CIFAR10, CIFAR100, CenterCrop, FashionMNIST, MNIST, RandomCrop, RandomResizedCrop, Resize, STL10, SVHN, image_size, img_size
import images
import torch
from torch import nn


def train(loader, optimizer):
    prepare = images.WORD
    model = nn.Conv2d(3, 64, 3)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(prepare(x)).mean()
        loss.backward()  # <- TP407?
        optimizer.step()
        optimizer.zero_grad()
