# about TP10 TP506
import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter


def to_cpu(tensor):
    return tensor.detach().cpu()


def reduce_dict(given):
    if dist.get_world_size() < 2:
        return given
    with torch.no_grad():
        names, values = [], []
        for name in sorted(given.keys()):
            names.append(name)
            values.append(given[name])
        values = torch.stack(values, dim=0)
        dist.all_reduce(values)  # <- TP506
        return {name: value for name, value in zip(names, values)}


class Meters:
    def __init__(self):
        self.kept = {}

    def update(self, **kwargs):
        for name, value in kwargs.items():
            if isinstance(value, torch.Tensor):
                value = value.item()  # <- TP101
            self.kept[name] = value


class Board(SummaryWriter):
    def log_training(self, rate, loss):
        self.add_scalar("rate", rate)
        self.add_scalar("loss", loss)  # <- TP103
