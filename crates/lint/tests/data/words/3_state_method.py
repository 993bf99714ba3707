# words: state_dict
import torch


class Average:
    def WORD(self):
        return {"total": self.total.item()}  # <~ TP101


def train(model, loader, optimizer):
    average = Average()
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.total = loss.detach()
        kept = average.WORD()
