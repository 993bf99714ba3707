# words: add, update
import torch


class Board:
    def WORD(self, value):
        self.total = value.item()


def train(model, loader, optimizer):
    board = Board()
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        board.WORD(loss)  # <- TP103
