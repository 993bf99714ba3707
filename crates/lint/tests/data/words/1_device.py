# words: device
from torch import nn

class Net(nn.Module):
    def forward(self, x, WORD):
        self.place = WORD.item()  # <~ TP101
        return x
