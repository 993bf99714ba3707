# words: abs, all, amax, amin, any, argmax, argmin, bfloat16, bmm, clamp, clamp_, contiguous, cumsum, detach, eq, exp, expand_as, flatten, float, gather, ge, gt, half, index_select, isfinite, isinf, isnan, le, log, log_softmax, long, lt, masked_fill, masked_fill_, masked_select, matmul, max, mean, min, narrow, ne, nonzero, norm, permute, pow, prod, relu, requires_grad_, scatter, scatter_, sigmoid, softmax, sqrt, square, squeeze, std, sum, topk, unsqueeze, var, view, view_as
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        h = x.WORD(1)
        print(h)  # <- TP103
        return h
