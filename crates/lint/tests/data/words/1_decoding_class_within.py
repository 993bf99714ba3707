# words: BeamSearch
from torch import nn

class MyWORDX(nn.Module):
    def forward(self, scores):
        return scores.argmax().item()  # <~ TP101?
