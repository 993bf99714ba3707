# words: Conv1d, Conv2d, Conv3d, ConvTranspose2d, conv2d, resnet101, resnet18, resnet34, resnet50, vgg16
import torch
import blocks


def train(loader, optimizer):
    model = blocks.WORD(3, 64)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(x).mean()
        loss.backward()  # <- TP401?
        optimizer.step()
        optimizer.zero_grad()
