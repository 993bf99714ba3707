# words: isinstance
import torch

def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        if WORD(loss, torch.Tensor):
            torch.cuda.synchronize()  # <- TP105 # <~ TP105?
