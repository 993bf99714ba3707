"""Tensors made on the host: moved at once, filled row by row before, in tables that grow, and rows of a data set in memory."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def extend(self, x):
        if self.table is not None:
            if self.table.size(0) >= x.size(1):
                self.table = self.table.to(x.dtype)
                return
        table = torch.zeros(x.size(1), 64)
        self.table = table.to(x.device)

    def forward(self, x):
        self.extend(x)
        noise = torch.randn(x.size(0), 64).to(x.device)  # <- TP202
        rows = torch.zeros(x.size(0), 64)
        for row in range(x.size(0)):
            rows[row, :row] = 1.0
        return x + self.table + noise + rows.to(x.device)


class Pictures(Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index])


def train(model, optimizer, inputs, targets, paths):
    rows = TensorDataset(inputs, targets)
    loader = DataLoader(rows, batch_size=32, pin_memory=True)
    for x, y in loader:
        step(model, optimizer, x.cuda(non_blocking=True))
    pictures = Pictures(paths)
    loader = DataLoader(pictures, batch_size=32, pin_memory=True)  # <- TP301
    for x in loader:
        step(model, optimizer, x.cuda(non_blocking=True))


def step(model, optimizer, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main(inputs, targets, paths):
    model = Positions().cuda()
    train(model, torch.optim.AdamW(model.parameters(), fused=True), inputs, targets, paths)
