# words: add, add_, bfloat16, clamp, clamp_, clone, contiguous, div, div_, double, float, half, masked_fill, masked_fill_, mul, mul_, narrow, repeat, reshape, reshape_as, squeeze, sub, unbind, unsqueeze, view, view_as, chunk, expand, expand_as, flatten, split, tril, tril_, triu, triu_, int, long, detach, detach_, type, to, cuda, type_as
import torch

class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1)  # <- TP403?
        scores = scores.WORD(0.125)
        weights = torch.softmax(scores, dim=-1)
        return weights @ v
