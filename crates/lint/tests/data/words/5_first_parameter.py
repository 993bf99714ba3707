# words: cls, self
# shows: confidence
import torch

class Attention(torch.nn.Module):
    def forward(WORD, x):
        q, k, v = WORD.to_q(x), WORD.to_k(x), WORD.to_v(x)
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)  # <- TP403?/high # <~ TP403?/medium
        return weights @ v
