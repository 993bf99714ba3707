"""Loaders whose epochs are gone through by a function that is handed them, by a trainer, or by a hook's caller; masks by name."""
# about TP304 TP106

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from missing.engine import train_one


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x, mask=None):
        logits = self.layer(x)
        active = mask.view(-1) == 1
        return logits.view(-1, 8)[active].mean()  # <- TP106


def train(model, optimizer, loader: DataLoader):
    for x, mask in loader:
        loss = model(x.cuda(), mask.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_and_evaluate(model, optimizer, loader: DataLoader, epochs: int):
    for epoch in range(epochs):
        train(model, optimizer, loader)


class Module(pl.LightningModule):
    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=8, num_workers=4, pin_memory=True)  # <- TP304


def main(rows, others, more):
    model = Scores().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    loader = DataLoader(rows, batch_size=8, num_workers=4, pin_memory=True)  # <- TP304
    train_and_evaluate(model, optimizer, loader, 20)
    handed = DataLoader(others, batch_size=8, num_workers=4, pin_memory=True)  # <- TP304
    for epoch in range(20):
        train_one(model, handed, optimizer)
    fitted = DataLoader(more, batch_size=8, num_workers=4, pin_memory=True)  # <- TP304
    pl.Trainer(max_epochs=20).fit(Module(), fitted)


if __name__ == "__main__":
    main([], [], [])
