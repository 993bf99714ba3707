# words: Loss
import torch


class ContrastiveWORD:
    def __call__(self, first, second):
        scores = first @ second.t()
        print(scores.mean().item())  # <- TP101
        return scores.mean()
