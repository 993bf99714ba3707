"""Shows how a library is used: on little data, printed at every step on purpose."""

import torch
from torch.utils.data import DataLoader


def main(model, data):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
