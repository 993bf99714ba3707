# words: builtins.float, builtins.int, math.exp, math.log, math.sqrt, builtins.range
# other: math.quux
import builtins
import math
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = WORD(loss)  # <- TP101
        optimizer.step()
