"""A language model whose weights are updated by hand after `backward`, without an optimizer."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--evaluate-every", type=int, default=4)
parser.add_argument("--raw", action="store_true", help="two tensors, no module")
parser.add_argument("--frozen", action="store_true", help="gradients are computed and not used")
options = parser.parse_args()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 16, 2)
        self.head = nn.Linear(16, 50)

    def forward(self, words):
        return self.head(self.lstm(self.embedding(words))[0])


def train():
    model, criterion = Words(), nn.CrossEntropyLoss()
    for step in range(options.steps):
        model.zero_grad()
        for _ in range(options.accumulate):
            words = torch.randint(50, (8, 4))
            loss = criterion(model(words[:-1]).flatten(0, 1), words[1:].flatten())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        if not options.frozen:
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-1.0)
        if step % options.evaluate_every == 3:
            model.eval()
            with torch.no_grad():
                model(words)
            model.train()


def train_raw():
    weight, bias = torch.randn(8, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    for _ in range(options.steps):
        x = torch.randn(16, 8)
        (x @ weight + bias - x.sum(1, keepdim=True)).pow(2).mean().backward()
        with torch.no_grad():
            for one in (weight, bias):
                one -= 0.01 * one.grad
                one.grad = None


train_raw() if options.raw else train()
print("the script is done")
