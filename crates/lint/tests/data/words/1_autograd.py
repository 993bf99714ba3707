# words: autograd
import torch

class Scale(torch.WORD.Function):
    def backward(ctx, gradient):
        ctx.largest = gradient.max().item()  # <- TP101
        return gradient
