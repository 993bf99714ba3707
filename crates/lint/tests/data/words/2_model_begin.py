# words: net
import torch


def train(WORD3, loader, optimizer, writer):
    for x, y in loader:
        loss = torch.square(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("score", WORD3(y))  # <- TP103
