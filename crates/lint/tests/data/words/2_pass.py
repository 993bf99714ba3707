# words: forward, forward_train
# other: training_step
import torch
from torch import nn


class Net(nn.Module):
    def WORD(self, x):
        for row in x:
            if row.mean().item() > 3:  # <- TP101? # <~ TP101
                self.count(row)
        return torch.relu(x)
