# words: transpose, swapaxes, permute, t, transpose_
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.WORD(-2, -1)  # <- TP403?
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
