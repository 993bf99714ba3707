# words: deleter, setter
import torch


class Runner:
    @property
    def level(self):
        return self.total.item()  # <- TP101?

    @level.WORD
    def level(self, value):
        self.total = value

    def run(self, model, loader, optimizer):
        for x in loader:
            loss = model(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.total = loss.detach()
            self.history["level"] = self.level
