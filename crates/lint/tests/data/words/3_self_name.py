# words: self
import torch
from torch import nn


class Net(nn.Module):
    def forward(WORD, x):
        past = torch.triu(torch.ones(WORD.reach, WORD.reach, device=x.device))  # <- TP201?
        return x @ past
