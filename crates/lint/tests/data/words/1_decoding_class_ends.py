# words: Searcher
from torch import nn

class MyWORD(nn.Module):
    def forward(self, scores):
        return scores.argmax().item()  # <~ TP101?
