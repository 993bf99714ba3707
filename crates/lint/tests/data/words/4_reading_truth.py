# words: builtins.bool, math.isfinite, math.isinf, math.isnan
# other: math.quux
import builtins
import math
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = WORD(loss)  # <- TP104
        optimizer.step()
