# words: reshape, view
# shows: confidence
import torch

class OverMaps(torch.nn.Module):
    def forward(self, x):
        b, c, h, w = x.size()
        q = x.WORD(b, c, -1)
        k = x.WORD(b, c, -1)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # <- TP403?/medium # <~ TP403?/high
        return weights @ self.to_v(x)
