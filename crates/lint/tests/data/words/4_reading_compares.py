# words: builtins.max, builtins.min
# other: builtins.quux
import builtins
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = WORD(loss, 1)  # <- TP104
        optimizer.step()
