# words: dropout
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)  # <- TP403?
        weights = torch.softmax(scores, dim=-1)
        weights = torch.WORD(weights, 0.1, True)
        return weights @ v
