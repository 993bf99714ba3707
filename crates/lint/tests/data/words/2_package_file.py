# words: __init__.py
# other: layers/quux.py
# file: torch/WORD
import torch
from .nn import Linear


def head():
    return Linear(100, 10, dtype=torch.bfloat16)  # <- TP405?
