# words: super
import torch


class Base:
    def note(self, value):
        self.rows.append(value.item())  # <- TP101


class Runner(Base):
    def note(self, value):
        WORD().note(value)

    def run(self, model, loader, optimizer):
        for x in loader:
            loss = model(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.note(loss)
