# words: cuda, to
import torch

def train(model, loader, optimizer):
    for batch in loader:
        noise = torch.randn(4)
        noise = noise.WORD("cuda")
        loss = model(batch + noise)
        print(noise)  # <- TP103
        loss.backward()
        optimizer.step()
