# words: DataLoader
from data_tools import WORD


class Batches(WORD):
    pass


def train(engine, data, optimizer):
    loader = Batches(data, 32)  # <- TP301
    for x in loader:
        engine.run(x.cuda())
        optimizer.step()
