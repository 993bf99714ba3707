# words: nn.functional.softmax
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)  # <- TP403?
        weights = torch.WORD(scores, dim=-1)
        return weights @ v
