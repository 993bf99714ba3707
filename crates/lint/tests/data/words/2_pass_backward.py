# words: backward, forward
# other: training_step
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def WORD(context, x):
        for row in x:
            if row.mean().item() > 3:  # <- TP101? # <~ TP101
                context.count(row)
        return torch.relu(x)
