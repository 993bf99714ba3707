"""A program: its training loop is in this file, so what it reaches is read as its reviewer would."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=4)
args = parser.parse_args()
device = torch.device("cuda")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(8, 8)

    def forward(self, x, lengths):
        # The host goes on with the length: no line here says where else it could come from.
        longest = lengths.max().item()
        noise = torch.randn(x.size(0)).to(device)  # <- TP202
        return self.layer(x[:, :longest])[0].mean() + noise.mean()


def train(data, epochs):
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=args.workers)
    for _ in range(epochs):
        for x, lengths in loader:
            x, lengths = x.to(device), lengths.to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, lengths)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if torch.isnan(loss):
                break
