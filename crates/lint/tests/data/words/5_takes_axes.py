# words: permute, transpose
# shows: confidence
import torch

class Attention(torch.nn.Module):
    def forward(self, x, axis):
        q = self.to_q(x).WORD(0, axis, 2)
        k = self.to_k(x)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # <- TP403?/high # <~ TP403?/medium
        return weights @ self.to_v(x)
