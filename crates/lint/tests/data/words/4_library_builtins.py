# words: builtins.abs, builtins.max
# other: builtins_of.quux
import builtins, builtins_of
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        print(WORD(loss))  # <- TP103
        loss.backward()
        optimizer.step()
