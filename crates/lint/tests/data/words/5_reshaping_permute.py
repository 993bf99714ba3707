# words: permute
# shows: confidence
import torch

class OverChannels(torch.nn.Module):
    def forward(self, x):
        q = self.to_q(x).WORD(0, 2, 3, 1)
        k = self.to_k(x).WORD(0, 2, 3, 1)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # <- TP403?/medium # <~ TP403?/high
        return weights @ self.to_v(x)
