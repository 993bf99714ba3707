# words: Trainer
# other: Accelerator
import torch


class WORD:
    def __init__(self, data):
        self.model = torch.nn.Linear(8, 8).cuda()
        self.data = data

    def run(self, loader, optimizer):
        for x in loader:
            loss = self.model(x.cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # <- TP605?
