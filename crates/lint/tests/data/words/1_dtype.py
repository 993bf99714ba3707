# words: bfloat16, bool, cfloat, complex128, complex64, double, float, float16, float32, float64, half, int, int16, int32, int64, int8, long, short, uint8
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        n = x.size(1)
        mask = torch.full((n, n), 0, torch.WORD, device=x.device)  # <- TP201?
        return x * mask
