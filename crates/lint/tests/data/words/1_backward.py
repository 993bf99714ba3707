# words: backward
import torch

class Scale(torch.autograd.Function):
    def WORD(ctx, gradient):
        ctx.largest = gradient.max().item()  # <- TP101
        return gradient
