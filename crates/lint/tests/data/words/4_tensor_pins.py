# words: pin_memory
import torch

def train(model, loader, optimizer):
    for batch in loader:
        batch = batch.WORD()
        batch = batch.cuda()  # <- TP303
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
