# words: .cuda.
import torch

def train(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        noise = torch.randn(8).type(torchWORDFloatTensor)  # <- TP202
        print(float(noise.sum()))  # <- TP101
