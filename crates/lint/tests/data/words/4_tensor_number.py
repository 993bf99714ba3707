# words: backward, register_hook, capitalize, format, join, lower, replace, strip, upper, dim, element_size, get_device, ndimension, nelement, numel, storage_offset, stride, endswith, equal, isdigit, startswith, numpy, item, keys
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        part = loss.WORD()
        print(part.float())  # <~ TP103
        optimizer.step()
