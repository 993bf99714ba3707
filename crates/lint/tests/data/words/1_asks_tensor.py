# words: is_tensor
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if torch.WORD(loss):
            torch.cuda.synchronize()  # <- TP105 # <~ TP105?
