# words: conversion, convert, converter, dataprep, download, extract, extraction, merge, preparation, prepare, preprocess, preprocessing, quantization, quantize, tokenize, transforms
# file: tools/WORD.py
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        self.scale = x.abs().mean().item()  # <- TP101? # <~ TP101
        return x / self.scale
