# words: staticmethod
import torch


class Runner:
    @WORD
    def note(value, rows=[]):
        rows.append(value.item())  # <- TP101

    def run(self, model, loader, optimizer):
        for x in loader:
            loss = model(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.note(loss)
