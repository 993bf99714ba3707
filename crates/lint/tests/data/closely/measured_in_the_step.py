"""Functions that a step calls run at every step, whatever their names; those that run without gradients train nothing."""

import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--timing", default=0, type=int)
args = parser.parse_args()


class Result:
    def evaluate(self, output, target):
        valid = target > 0
        output = output[valid]  # <- TP106
        self.error = float(output.mean())  # <- TP101


class Tagger(nn.Module):
    def forward(self, words, attention_mask, labels):
        scores = self.head(words)
        active = attention_mask.view(-1) == 1
        return scores.view(-1, 4)[active]  # <- TP106


class Learner:
    def update(self, x, training=True):
        loss = self.net(x).mean()
        if training:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return {"loss": loss}


def train(loader, model, criterion, optimizer, held_out, combine):
    learner = Learner()
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        if args.timing == 1:
            torch.cuda.synchronize()
        out = model(x)
        chosen = (out < 0.5).type(torch.FloatTensor)  # <- TP102
        loss = combine(out, y, chosen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = "%.3f" % float(loss)  # <- TP101
        result = Result()
        result.evaluate(out.data, y.data)
    for x in held_out:
        with torch.no_grad():
            stats = learner.update(x.cuda(), training=False)
        print(stats["loss"].item())
    return shown
