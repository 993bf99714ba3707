# words: available, supports
import torch

def train(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).mean().backward()
        optimizer.step()
        if graph_WORD_here(model):
            model.replay()
        else:
            torch.cuda.synchronize()  # <~ TP105?
