# words: dtype
import torch

class Trainer:
    def __init__(self):
        self.done = torch.empty(1, WORD=torch.bool, device="cuda")

    def train(self, model, loader, optimizer):
        for x in loader:
            model(x.cuda()).mean().backward()
            optimizer.step()
            if self.done:  # <- TP104?
                break
