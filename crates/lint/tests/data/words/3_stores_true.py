# words: store_true
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="WORD")
args = parser.parse_args()


def train(loader, optimizer):
    model = torch.nn.Linear(8, 8).cuda()
    for x in loader:
        with torch.autocast("cuda", enabled=args.amp):
            loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()  # <- TP402?
        optimizer.step()
