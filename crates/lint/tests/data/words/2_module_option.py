# words: module
import torch
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def forward(self, x):
        return 3


def train(loader, writer, optimizer):
    engine = DistributedDataParallel(WORD=Net())
    for x, y in loader:
        loss = engine(x.cuda()).mean()
        writer.add_scalar("result", engine(x))  # <~ TP103
        loss.backward()
        optimizer.step()
