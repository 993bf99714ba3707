# words: batch_idx
from torch import nn

class Net(nn.Module):
    def forward(self, x, WORD):
        self.seen = WORD.item()  # <~ TP101
        return x
