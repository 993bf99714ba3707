# words: args, cfg, config, opt, options, params, settings
import torch
from tools import given
from torch.utils.data import DataLoader


class MyWORD:
    num_workers = 0


def train(model, data, optimizer):
    loader = DataLoader(data, 32, num_workers=given.num_workers)  # <- TP301?
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
