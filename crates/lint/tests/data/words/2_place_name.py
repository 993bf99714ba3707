# words: cuda, device, gpu
import torch
from torch.utils.data import DataLoader


def train(model, data, optimizer, options):
    loader = DataLoader(data, batch_size=32, num_workers=2, pin_memory=options.use_WORD)
    for x, y in loader:
        loss = model(x.cuda()).mean()  # <- TP303
        loss.backward()
        optimizer.step()
