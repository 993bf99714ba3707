# words: __next__, next, next_batch
import torch
from torch.utils.data import DataLoader

def train(model, records, optimizer):
    loader = DataLoader(records, batch_size=8)
    for step in range(100):
        batch = loader.WORD()
        size = batch.item()  # <~ TP101
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
