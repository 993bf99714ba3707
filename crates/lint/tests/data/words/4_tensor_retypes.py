# words: type
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        kept = loss.WORD(torch.FloatTensor)  # <- TP102
        optimizer.step()
