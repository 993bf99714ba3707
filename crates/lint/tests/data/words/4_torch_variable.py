# words: autograd.Variable
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        kept = torch.WORD(loss > 0)
        part = loss[kept]  # <- TP106
        loss.backward()
        optimizer.step()
