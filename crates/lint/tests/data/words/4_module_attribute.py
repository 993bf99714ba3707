# words: bias, weight
import torch

def train(loader, optimizer):
    model = torch.nn.Linear(4, 4)
    for batch in loader:
        loss = model(batch.cuda())
        print(model.WORD)  # <- TP103
        loss.backward()
        optimizer.step()
