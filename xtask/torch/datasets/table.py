"""Data sets that loader workers serve wrongly, and ones that they serve as the script itself would.

Each case is a loop over a loader with a data set that it may change. `wrong` cases deliver other samples once workers
read them; `right` ones deliver the same, or the same but for numbers that are drawn anew.
"""
import multiprocessing
import os
import random
import tempfile
import time

import numpy
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, WeightedRandomSampler, default_collate

COUNT = 24
LEVEL = 0


class Case:
    """`make` returns the data set. `epoch(data, number)` is called before every epoch, `step(data, number, batch)` after
    every batch; the rest are arguments of the loader. `own` is what the script asked for: workers, and whether they
    stay."""

    def __init__(self, name, make, epoch=None, step=None, own=(0, False), stays=True, draws=False, **loader):
        self.name, self.make, self.own, self.stays, self.draws = name, make, own, stays, draws
        self.epoch = epoch or (lambda data, number: None)
        self.step = step or (lambda data, number, batch: None)
        self.loader = loader


class Numbers(Dataset):
    """Numbers and labels; subclasses change `read`."""

    def __init__(self, **fields):
        vars(self).update(fields)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return torch.full((3,), float(index)), self.read(index)

    def read(self, index):
        return index + getattr(self, "level", 0)


def reading(read, **fields):
    """Makes a data set whose labels come from this function of itself and the index."""
    kind = type("Numbers", (Numbers,), {"read": read})
    return lambda: kind(**{name: value() if callable(value) else value for name, value in fields.items()})


def put(name, value=lambda number: number):
    """Sets a field, by its path, to a function of the epoch."""

    def change(data, number):
        *path, last = name.split(".")
        for word in path:
            data = data[int(word)] if word.isdigit() else getattr(data, word)
        setattr(data, last, value(number))

    return change


def later(change, at=2):
    """The same in the middle of an epoch, for good."""
    return lambda data, number, batch: change(data, number) if number == at else None


class Transform:
    def __init__(self):
        self.strength = 0

    def __call__(self, value):
        return value * 10 + self.strength


class Padding:
    def __init__(self):
        self.length = 1

    def __call__(self, items):
        inputs, labels = default_collate(items)
        return torch.nn.functional.pad(inputs, (0, self.length)), labels


class Lists(Numbers):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Whole(Numbers):
    """Returns batches, without collation."""

    def __len__(self):
        return COUNT // 4

    def __getitem__(self, index):
        return torch.arange(4) + 4 * index + getattr(self, "level", 0)


class Stream(IterableDataset):
    def __init__(self):
        self.level = 0

    def __iter__(self):
        for index in range(COUNT):
            yield torch.tensor([index, self.level])


class OwnMethods(Numbers):
    LEVEL = 0

    def read(self, index):
        return index + self.LEVEL


def set_global(data, number):
    global LEVEL
    LEVEL = number


def enclosed():
    level = 0

    def collate(items):
        return default_collate(items)[1] + level

    def change(number):
        nonlocal level
        level = number

    return collate, change


COLLATE, CHANGE = enclosed()
PADDING = Padding()
SHARED_LEVEL = multiprocessing.get_context("fork").Value("i", 0)


def count_reads(self, index):
    self.count += 1
    return self.count


def drawn_by_own(self, index):
    return int(torch.randint(1000, (), generator=self.generator))


def after_a_while(data, number, batch):
    if number == 0:
        # Workers have read ahead by now.
        time.sleep(0.2)
        SHARED_LEVEL.value += 1


def learn(data, number, batch):
    data.model.weight.data.add_(1.0)


def mine(data, number, batch):
    if number == 2:
        data.hard = [int(label) % COUNT for label in batch[1]]


def mapped(self, index):
    return self.hard[index % len(self.hard)]


WRONG = [
    Case("an attribute that the loop sets per epoch", Numbers, epoch=put("level")),
    Case("an attribute set in the middle of an epoch", Numbers, step=later(put("level"))),
    Case("the same with workers that do not stay", Numbers, step=later(put("level")), stays=False),
    Case("hard samples that were mined", reading(mapped, hard=lambda: list(range(COUNT))), step=mine),
    Case(
        "the strength of a transform",
        reading(lambda self, index: self.transform(index), transform=Transform),
        epoch=put("transform.strength"),
    ),
    Case("a subset's data set", lambda: Subset(Numbers(), range(16)), epoch=put("dataset.level")),
    Case("one part of two", lambda: ConcatDataset([Numbers(), Numbers()]), epoch=put("datasets.1.level")),
    Case("a subset's indices", lambda: Subset(Numbers(), list(range(16))), epoch=put("indices", lambda number: [number] * 16)),
    Case(
        "an attribute of collation", Numbers, epoch=lambda data, number: setattr(PADDING, "length", number), collate_fn=PADDING
    ),
    Case("a variable around collation", Numbers, epoch=lambda data, number: CHANGE(number), collate_fn=COLLATE),
    Case("a global variable", reading(lambda self, index: index + LEVEL), epoch=set_global),
    Case("a variable of the environment", reading(lambda self, index: int(os.environ.get("PLANTED_LEVEL", "0"))),
         epoch=lambda data, number: os.environ.update(PLANTED_LEVEL=str(number))),
    Case("labels changed in place", reading(lambda self, index: int(self.labels[index]), labels=lambda: torch.arange(COUNT)),
         epoch=lambda data, number: data.labels.add_(number)),
    Case("an array of labels changed in place",
         reading(lambda self, index: int(self.labels[index]), labels=lambda: numpy.arange(COUNT)),
         epoch=lambda data, number: data.labels.__iadd__(number)),
    Case("pseudo labels kept by index", reading(lambda self, index: self.pseudo.get(index, 0), pseudo=dict),
         step=lambda data, number, batch: data.pseudo.update({int(label): 1 for label in range(COUNT)})),
    Case("a list that grows", reading(lambda self, index: len(self.seen), seen=list),
         step=lambda data, number, batch: data.seen.append(number)),
    Case("an attribute of the class", OwnMethods, epoch=lambda data, number: setattr(OwnMethods, "LEVEL", number)),
    Case("a method that is replaced", Numbers,
         epoch=put("read", lambda number: lambda index: index + 100 if number else index)),
    Case("a data set that reads lists", Lists, epoch=put("level")),
    Case("a data set that reads batches", Whole, epoch=put("level"), batch_size=None),
    Case("a count of its own reads", reading(count_reads, count=0)),
    Case("a generator of its own", reading(drawn_by_own, generator=lambda: torch.Generator().manual_seed(0)), draws=True),
    Case("numpy's generator of its own",
         reading(lambda self, index: int(self.rng.integers(1000)), rng=lambda: numpy.random.default_rng(1)), draws=True),
    Case("a model that learns meanwhile",
         reading(lambda self, index: self.model.weight.sum().item(), model=lambda: torch.nn.Linear(2, 1)), step=learn),
    Case("shared memory written after workers read ahead", reading(lambda self, index: SHARED_LEVEL.value), step=after_a_while),
    Case("a stream whose level changes on the way", Stream, step=later(put("level")), stays=False),
    Case("own workers that would have started anew", Numbers, epoch=put("level"), own=(1, False)),
    Case("augmentation whose strength grows",
         reading(lambda self, index: random.random() * (1 + getattr(self, "level", 0))), epoch=put("level"), draws=True),
]


class OpensLate(Numbers):
    def read(self, index):
        if not hasattr(self, "file"):
            self.file = tempfile.TemporaryFile()
            self.file.write(bytes(range(COUNT)))
        self.file.seek(index)
        return self.file.read(1)[0]


class Caches(Numbers):
    def read(self, index):
        known = vars(self).setdefault("known", {})
        return known.setdefault(index, index * index)


class Words(Numbers):
    def __getitem__(self, index):
        return {"text": f"word {index}", "length": index, "parts": (index, [torch.tensor([index])])}


def in_file():
    file = numpy.memmap(tempfile.NamedTemporaryFile(delete=False).name, dtype="int32", mode="w+", shape=(COUNT,))
    file[:] = numpy.arange(COUNT)
    return file


def mixed(items):
    inputs, labels = default_collate(items)
    return inputs[torch.randperm(len(inputs))] + random.random(), labels


def ragged(items):
    return [torch.arange(int(label)) for _, label in items]


SAMPLER = WeightedRandomSampler([1.0] * COUNT, COUNT)


def reweigh(data, number):
    SAMPLER.weights[: COUNT // 2] = 1.0 + number


RIGHT = [
    Case("numbers", Numbers),
    Case("torch draws", reading(lambda self, index: torch.rand(2)), draws=True),
    Case("numpy draws", reading(lambda self, index: numpy.random.rand(2)), draws=True),
    Case("random draws", reading(lambda self, index: random.random()), draws=True),
    Case("all three draw",
         reading(lambda self, index: torch.rand(()).item() + numpy.random.rand() + random.random()), draws=True),
    Case("collation draws", Numbers, collate_fn=mixed, draws=True),
    Case("a file that is opened by the first read", OpensLate),
    Case("a cache that reads fill", Caches),
    Case("an attribute that no read uses", Numbers, epoch=put("epochs_seen")),
    Case("a subset", lambda: Subset(Numbers(), range(3, 19))),
    Case("texts and nested lists", Words),
    Case("samples of several lengths", Numbers, collate_fn=ragged),
    Case("an array in a file", reading(lambda self, index: int(self.numbers[index]), numbers=in_file)),
    Case("batches that the script chooses", Numbers, batch_sampler=[[0, 5, 7], [3], [1, 1, 2, 2]]),
    Case("weights of a sampler that change", Numbers, epoch=reweigh, sampler=SAMPLER, draws=True),
    Case("a data set that reads lists", Lists),
    Case("a data set that reads batches", Whole, batch_size=None),
    Case("a level per epoch with workers that start anew", Numbers, epoch=put("level"), stays=False),
    Case("a level that the script's own workers do not see either", Numbers, step=later(put("level")), own=(1, True)),
    Case("the same with own workers that start anew", Numbers, step=later(put("level")), own=(1, False), stays=False),
    Case("draws that nobody seeded", reading(lambda self, index: numpy.random.default_rng().random()), draws=True),
    Case("the time of reading", reading(lambda self, index: time.time_ns()), draws=True),
    Case("shared memory written between epochs", reading(lambda self, index: SHARED_LEVEL.value),
         epoch=lambda data, number: setattr(SHARED_LEVEL, "value", number)),
    Case("a stream", Stream, stays=False),
    Case("a stream whose level changes between epochs", Stream, epoch=put("level"), stays=False),
    Case("workers that seed numpy", reading(lambda self, index: numpy.random.rand()), draws=True,
         worker_init_fn=lambda number: numpy.random.seed(number)),
]
