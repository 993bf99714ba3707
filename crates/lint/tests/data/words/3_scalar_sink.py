# words: add_scalar
import torch


class Board:
    def log_value(self, value):
        self.writer.WORD("value", value)  # <- TP103


def train(model, loader, optimizer):
    board = Board()
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        board.log_value(loss)  # <- TP103
