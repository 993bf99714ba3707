"""Losses by their names, averaged over the ranks and kept by a meter of another file."""
# about TP10 TP506

import misc
from torch import nn


class Criterion(nn.Module):
    def loss_labels(self, outputs, targets):
        return {"labels": (outputs - targets).abs().mean()}

    def loss_sizes(self, outputs, targets):
        if (outputs > 0).all():  # <- TP104
            outputs = outputs + 1
        return {"sizes": (outputs - targets).square().mean()}

    def forward(self, outputs, targets):
        table = {"labels": self.loss_labels, "sizes": self.loss_sizes}
        losses = {}
        for name in ("labels", "sizes"):
            losses.update(table[name](outputs, targets))
        return losses


def train_one_epoch(model, loader, optimizer, logger):
    meters = misc.Meters()
    criterion = Criterion()
    for images, targets in loader:
        losses = criterion(model(images.cuda()), targets.cuda())
        loss = sum(losses[name] for name in losses.keys())
        reduced = misc.reduce_dict(losses)  # <- TP506
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        meters.update(rate=0.1)
        meters.update(**reduced)  # <- TP103
        logger = misc.Board(".")
        logger.log_training(0.1, loss.detach())  # <- TP103
        kept = misc.to_cpu(loss)  # <- TP102
    return kept
