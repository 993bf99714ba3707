# words: n_cpu, n_jobs, num_cpu, persistent, pin_mem, thread, worker
import torch
from torch.utils.data import DataLoader


def train(model, data, optimizer, my_WORD_x=0):
    loader = DataLoader(data, batch_size=32, num_workers=my_WORD_x)  # <- TP301?
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
