# words: full_like, ones_like, zeros_like
import torch

def train(model, loader, optimizer):
    for batch in loader:
        scores = model(batch.cuda())
        mask = torch.WORD(scores).triu(1)  # <- TP201
        loss = (scores * mask).sum()
        loss.backward()
        optimizer.step()
