# words: where
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)  # <- TP403?
        scores = torch.WORD(scores > 0, scores, -9.0)
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
