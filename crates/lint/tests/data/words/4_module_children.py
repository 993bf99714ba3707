# words: children, modules, named_children
import torch

def train(loader, optimizer):
    model = torch.nn.Linear(4, 4)
    for batch in loader:
        loss = model(batch.cuda())
        for part in model.WORD():
            size = part.item()  # <~ TP101
        loss.backward()
        optimizer.step()
