# words: epoch
import torch

class Trainer:
    def mask(self, x):
        return torch.full((x.size(1), self.my_WORD_x), 0.0, device=x.device)  # <~ TP201

    def train(self, model, loader, optimizer):
        for x in loader:
            x = x.cuda()
            model(x, self.mask(x)).mean().backward()
            optimizer.step()
