# words: forward
from torch import nn

class Net(nn.Module):
    def WORD(self, x):
        return x / x.max().item()  # <- TP101?
