# words: base.OwnTrainer
# other: base.quux
import base
import torch

class Fit(WORD):
    def compute_loss(self, model, inputs):
        loss = model(inputs.cuda())
        self.size = loss.item()  # <- TP101?
        return loss

    def evaluate(self, loader):
        for batch in loader:
            self.compute_loss(self.model, batch)
