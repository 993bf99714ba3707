# words: display, draw, load, log, plot, print, save, show, vis, visualize, write
import torch


class Board:
    def WORD_rows(self, value):
        return len(self.rows)


def train(model, loader, optimizer, board, rows):
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found = board.WORD_rows(loss)
        rows.append(found.item())  # <- TP101
