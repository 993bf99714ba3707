# words: new_empty, new_full, new_ones, new_tensor, new_zeros
# other: new_quux
import torch

def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        print(loss.WORD(4))  # <- TP103
        optimizer.step()
