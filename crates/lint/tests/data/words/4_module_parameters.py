# words: parameters, named_parameters
import torch

def train(loader, optimizer):
    model = torch.nn.Linear(4, 4)
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        for name, part in model.WORD():
            size = part.item()  # <- TP107
        optimizer.step()
