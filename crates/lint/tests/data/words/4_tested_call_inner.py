# words: all, any
import torch

def train(model, loader, optimizer, others):
    for batch in loader:
        loss = model(batch.cuda())
        if torch.isnan(loss).WORD():
            print(loss)  # <~ TP103?
        loss.backward()
        optimizer.step()
