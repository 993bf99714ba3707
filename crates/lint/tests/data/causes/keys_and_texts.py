"""Keys of tables and texts in batches: they are not tensors, and a table of the host's needs its key there."""

import torch
from torch import nn


class Nodes(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, x, ids):
        rows = []
        for one in ids:
            # The table is the host's.
            rows.append(self.table[one.item()])
        return x, rows


class Images(nn.Module):
    def forward(self, x):
        outputs = {"input": x, "output": x * 2}
        images = self.decode(outputs)
        for k in images:
            print(f"{k}", images[k].shape)
        return images


def ratio(value, count):
    if isinstance(count, torch.Tensor):
        return torch.where(count > 0, value / count, value)
    return value / count if count > 0 else value


def train(model, loader, optimizer):
    for batch in loader:
        batch = {k: v.cuda() for k, v in batch.items()}
        loss = model(**batch).loss
        loss = ratio(loss, loss.detach().sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{batch['dataset_name']} {batch['file_path']}")
