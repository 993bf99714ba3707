# words: torch.autograd, torch.distributed.autograd
# other: torch.quux
import torch
import torch.distributed.autograd

def train(model, loader):
    for x in loader:
        loss = model(x.cuda()).mean()
        WORD.backward([loss])  # <- TP404?
        print(loss.item())  # <- TP101
