# words: merge, merge_adapter, merge_and_unload, unmerge, unmerge_adapter
import torch
from torch import nn


class Layer(nn.Module):
    def forward(self, x):
        self.WORD(x)
        return torch.relu(x)

    def WORD(self, x):
        self.peak = x.max().item()  # <- TP101? # <~ TP101
