# words: size
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        print(loss.WORD(0))  # <~ TP103
        optimizer.step()
