# words: log, record, write
import torch


class Board:
    def my_WORD_x(self, value):
        self.total = value.item()


def train(model, loader, optimizer):
    board = Board()
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        board.my_WORD_x(loss)  # <- TP103
