# words: type_as
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        print(loss.WORD(torch.zeros(4)))  # <~ TP103
        optimizer.step()
