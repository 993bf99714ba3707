# words: to_tuple
# other: to_quux
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        for part in loss.WORD():
            print(part)  # <- TP103
        optimizer.step()
