# words: DataLoader
import torch
from torch.utils import data

class Batches(data.WORD):
    pass

def train(model, records, optimizer):
    for batch in Batches(records, batch_size=8):  # <- TP301?
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
