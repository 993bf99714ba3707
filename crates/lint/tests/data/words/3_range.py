# words: range, trange
import torch
from tools import model, opts, optimizer, x

for turn in WORD(opts.epochs):
    loss = model(x.cuda()).sum()
    loss.backward()  # <- TP404?
    optimizer.step()
