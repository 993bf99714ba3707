# words: loss, penalty
import torch


def triplet_WORD(first, second):
    scores = torch.matmul(first, second.t())
    total = scores.mean().item()  # <- TP101?
    return scores / total
