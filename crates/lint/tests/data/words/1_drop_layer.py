# words: drop
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.my_WORD_x = nn.Dropout(0.1)

    def forward(self, x):
        kept = self.my_WORD_x(torch.rand(8))
        return x * float(kept.sum())  # <~ TP101?
