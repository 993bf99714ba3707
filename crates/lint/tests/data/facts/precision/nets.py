# about TP40
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        half = x.shape[-1] // 2
        return self.layer(x)[..., :half]
