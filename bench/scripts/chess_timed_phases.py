"""A plain loop over a chess network whose stopwatch synchronises after every phase. Fixed: CUDA events, read at times."""
import argparse
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--small", action="store_true", help="a size for a machine without a GPU")
arguments = parser.parse_args()

has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
blocks, width, batch, games = (2, 16, 8, 64) if arguments.small else (20, 256, 1024, 20000)
PLANES, MOVES, TRIED = 112, 1858, 30
torch.backends.cudnn.benchmark = True


class Positions:
    """Played positions as they are stored: a bit per square and plane, and the visits of the moves tried."""

    def __init__(self):
        self.draw = numpy.random.default_rng(0)
        self.bits = self.draw.integers(0, 256, (games, PLANES, 8), dtype=numpy.uint8)
        self.moves = (self.draw.integers(0, MOVES, (games, 1)) + 61 * numpy.arange(TRIED)) % MOVES
        self.visits = self.draw.random((games, TRIED), dtype=numpy.float32)
        self.visits /= self.visits.sum(1, keepdims=True)
        self.results = self.draw.integers(0, 3, games)

    def batch(self):
        chosen = self.draw.integers(0, games, batch)
        planes = numpy.unpackbits(self.bits[chosen], axis=2).reshape(batch, PLANES, 8, 8)
        policy = numpy.zeros((batch, MOVES), dtype=numpy.float32)
        policy[numpy.arange(batch)[:, None], self.moves[chosen]] = self.visits[chosen]
        parts = [torch.from_numpy(part) for part in (planes, policy, self.results[chosen])]
        if has_gpu:
            parts = [part.pin_memory().to(device, non_blocking=True) for part in parts]
        return parts


class Stopwatch:
    """Seconds spent in each phase of the steps since the last report."""

    def __init__(self):
        self.names, self.marks = ["batch", "forward", "backward", "update"], []

    def mark(self):
        if has_gpu and arguments.fixed:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
            return
        if has_gpu:
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())

    def report(self):
        if has_gpu and arguments.fixed:
            torch.cuda.synchronize()
            spans = [before.elapsed_time(after) / 1e3 for before, after in zip(self.marks, self.marks[1:])]
        else:
            spans = [after - before for before, after in zip(self.marks, self.marks[1:])]
        each = len(self.names) + 1
        sums = {name: sum(spans[n::each]) for n, name in enumerate(self.names)}
        self.marks = []
        return " ".join(f"{name} {seconds:.3f} s" for name, seconds in sums.items())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm, self.norm_after = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = functional.relu(self.norm(self.first(x)))
        return functional.relu(x + self.norm_after(self.second(y)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(PLANES, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.tower = nn.Sequential(*(Residual() for _ in range(blocks)))
        self.for_policy, self.for_value = nn.Conv2d(width, 32, 1), nn.Conv2d(width, 32, 1)
        self.policy, self.value = nn.Linear(32 * 64, MOVES), nn.Linear(32 * 64, 3)

    def forward(self, planes):
        x = self.tower(self.enter(planes))
        return (
            self.policy(functional.relu(self.for_policy(x)).flatten(1)),
            self.value(functional.relu(self.for_value(x)).flatten(1)),
        )


torch.manual_seed(0)
positions, watch = Positions(), Stopwatch()
model = Network().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=has_gpu)
for step in range(1, arguments.steps + 1):
    watch.mark()
    planes, policy, results = positions.batch()
    planes = planes.float().contiguous(memory_format=torch.channels_last)
    watch.mark()
    with torch.autocast(device, torch.bfloat16, enabled=has_gpu):
        moves, outcome = model(planes)
    loss = functional.cross_entropy(moves.float(), policy) + functional.cross_entropy(outcome.float(), results)
    watch.mark()
    loss.backward()
    watch.mark()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    watch.mark()
    if step % 50 == 0 or step == arguments.steps:
        print(f"step {step} loss {loss.item():.4f} {watch.report()}")
