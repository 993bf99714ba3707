"""A scaler that leaves out the steps it is told to leave out."""


class GradScaler:
    def __init__(self, left_out=()):
        self.left_out = set(left_out)
        self.steps = 0

    def step(self, optimizer):
        self.steps += 1
        if self.steps not in self.left_out:
            optimizer.step()
