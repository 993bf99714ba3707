# words: model
import deepspeed
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return 3


def train(loader, writer):
    engine, _, _, _ = deepspeed.initialize(WORD=Net())
    for x, y in loader:
        result = engine(x.cuda())
        writer.add_scalar("result", result)  # <~ TP103
        engine.backward(result)
        engine.step()
