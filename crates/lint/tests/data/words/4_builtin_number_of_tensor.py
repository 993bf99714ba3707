# words: abs, max, min, pow, round, sum, next
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        print(WORD(loss))  # <- TP103
        loss.backward()
        optimizer.step()
