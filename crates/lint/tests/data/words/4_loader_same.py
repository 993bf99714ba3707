# words: __iter__, batch, shuffle, unbatched
import torch
from torch.utils.data import DataLoader

def train(model, records, optimizer):
    loader = DataLoader(records, batch_size=8)
    for batch in loader.WORD():
        size = batch.item()  # <~ TP101
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
