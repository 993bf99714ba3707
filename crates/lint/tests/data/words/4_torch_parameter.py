# words: Parameter
import torch

def train(model, loader, optimizer):
    scale = torch.nn.WORD(torch.ones(4))
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
        print(scale)  # <- TP103
