"""Half precision that has to be asked for, a trainer of the project's own, and a precision that is a metric."""
# about TP40

from engine import train
from nets import Net


class Trainer:
    def __init__(self, amp=False):
        self.amp = amp

    def run(self, loader, optimizer):
        train(Net().cuda(), loader, optimizer, self.amp)


if __name__ == "__main__":
    Trainer(amp=False).run([], None)
