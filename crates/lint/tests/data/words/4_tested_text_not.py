# words: cuda, gpu, train, training
import torch

def train(model, loader, optimizer, stage):
    for batch in loader:
        loss = model(batch.cuda())
        if stage != "WORD":
            print(loss)  # <~ TP103?
        loss.backward()
        optimizer.step()
