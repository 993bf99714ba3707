# words: Function
import torch

class Scale(torch.autograd.WORD):
    def backward(context, grad):
        context.size = grad.cuda().item()  # <- TP101?
        return grad
