# words: buffers
import torch

def train(loader, optimizer):
    model = torch.nn.Linear(4, 4)
    for batch in loader:
        loss = model(batch.cuda())
        for part in model.WORD():
            print(part)  # <- TP103
        loss.backward()
        optimizer.step()
