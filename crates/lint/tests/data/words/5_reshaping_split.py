# words: split
# shows: confidence
import torch

class Attention(torch.nn.Module):
    def forward(self, x):
        q, k, v = self.packed(x).WORD([self.few, self.few, self.many], dim=1)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # <- TP403?/medium # <~ TP403?/high
        return weights @ v
