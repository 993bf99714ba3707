# words: mean
# shows: confidence
import torch

class Pool(torch.nn.Module):
    def forward(self, x):
        q = self.to_q(x.WORD(1, keepdim=True))
        k = self.to_k(x)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # <- TP403?/medium # <~ TP403?/high
        return weights @ self.to_v(x)
