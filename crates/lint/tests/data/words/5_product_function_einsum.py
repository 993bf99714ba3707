# words: einsum
# shows: confidence
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = torch.WORD("bhid,bhjd->bhij", q, k)  # <- TP403?/high
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
