# words: GeneralizedRCNN, detection, multi_scale, multiscale, pad_sequence, rect
import images
import torch
from torch import nn
from torchvision.transforms import Resize


def train(loader, optimizer):
    prepare = images.WORD
    resize = Resize(224)
    model = nn.Conv2d(3, 64, 3)
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        loss = model(prepare(resize(x))).mean()
        loss.backward()  # <~ TP407?
        optimizer.step()
        optimizer.zero_grad()
