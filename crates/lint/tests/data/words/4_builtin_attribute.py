# words: getattr
import torch

class Trainer:
    def __init__(self, model):
        self.model = model
        self.count = 4

    def train(self, loader, optimizer):
        for batch in loader:
            loss = self.model(batch.cuda())
            loss.backward()
            count = WORD(self, "count")
            size = count.item()  # <~ TP101
            optimizer.step()
