# words: bmm, matmul
# shows: confidence
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.WORD(q, k.transpose(1, 2))  # <- TP403?/high
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
