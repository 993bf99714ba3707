# words: cat, concat, hstack, vstack, stack
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        kept = torch.WORD([loss > 0, loss < 1])
        part = loss[kept]  # <- TP106
        loss.backward()
        optimizer.step()
