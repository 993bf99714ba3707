# words: device, dtype, grad_fn, is_cuda, is_leaf, is_sparse, itemsize, keys, name, names, nbytes, ndim, requires_grad, shape, training
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = loss.WORD.tolist()  # <~ TP102
        optimizer.step()
