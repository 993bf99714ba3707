# words: _device
from torch import nn

class Net(nn.Module):
    def forward(self, x, myWORD):
        self.place = myWORD.item()  # <~ TP101
        return x
