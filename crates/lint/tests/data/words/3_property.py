# words: property
import torch


class Runner:
    @WORD
    def level(self):
        return self.total.item()  # <- TP101?

    def run(self, model, loader, optimizer):
        for x in loader:
            loss = model(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.total = loss.detach()
            self.history["level"] = self.level
