# words: epoch, iter, step
import torch
from tools import model, opts, optimizer, x

for turn in range(opts.my_WORDs_in_all):
    loss = model(x.cuda()).sum()
    loss.backward()  # <- TP404?
    optimizer.step()
