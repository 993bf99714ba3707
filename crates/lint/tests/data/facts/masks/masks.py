# about TP2
import numpy as np
import torch


class CausalMask:
    def __init__(self, batch, length, device):
        self.kept = torch.triu(torch.ones(batch, 1, length, length, dtype=torch.bool), diagonal=1).to(device)  # <- TP201


class Schedule:
    def sample_steps(self, count, device):
        drawn = np.random.choice(1000, size=(count,))
        return torch.from_numpy(drawn).long().to(device)  # <- TP203

    def q_sample(self, x, t):
        return x * extract(np.sqrt(np.linspace(0.1, 0.9, 1000)), t)  # <- TP203

    def losses(self, model, x, t):
        return (model(self.q_sample(x, t)) - x).square()

    def sample(self, model, shape, device):
        x = torch.randn(*shape).to(device)
        return model(x)


def extract(table, t):
    return torch.from_numpy(table).to(device=t.device)[t].float()  # <- TP203
