# words: add_scalar, append, debug, get_batch, info, keys, log, next_batch, param_groups, sample, state_dict, update, write
import torch

def train(model, loader, optimizer, other):
    for batch in loader:
        loss = model(batch.cuda())
        part = other.WORD(loss)
        count = part.tolist()  # <~ TP102
        loss.backward()
        optimizer.step()
