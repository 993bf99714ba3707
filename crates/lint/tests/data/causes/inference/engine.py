"""Answers requests: every token is read, because somebody waits for it."""

import torch
from torch import nn


class Engine(nn.Module):
    def forward(self, tokens):
        logits = self.model(tokens)
        best = logits.argmax(-1)
        if best[0, -1].item() == self.end_token:
            return None
        return best.cpu()
