# words: cuda, gpu, gpus
import torch

def train(model, loader, optimizer, my_WORD_x):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        if my_WORD_x:
            torch.cuda.synchronize()  # <- TP105 # <~ TP105?
