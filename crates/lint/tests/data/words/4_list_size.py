# words: count, index, numel
import torch

def train(model, loader, optimizer):
    for batch in loader:
        size = batch.shape.WORD(4)
        mask = torch.ones(size, size).triu().cuda()  # <- TP201
        loss = model(batch.cuda(), mask)
        loss.backward()
        optimizer.step()
