# words: matmul, mm, bmm
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q.WORD(k.transpose(-2, -1))  # <- TP403?
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
