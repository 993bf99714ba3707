# words: torch
import WORD


def train(engine, loader, optimizer):
    for x in loader:
        weights = WORD.rand(8).cuda()  # <- TP202
        engine.run(x, weights)
        optimizer.step()
