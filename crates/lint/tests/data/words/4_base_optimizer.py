# words: Optimizer
import base
import torch

class Updates(base.WORD):
    def step(self):
        norm = self.norm.cuda()
        self.size = norm.item()  # <- TP101?
