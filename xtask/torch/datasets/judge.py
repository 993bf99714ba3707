"""Drives every case of the table through loader workers, in one process with the hook, and counts the verdicts.

A case is refused if batches that were read again differ, or if its batches differ from those without workers where
nothing is drawn. Prints one line per misjudged case and the two counts.
"""
import random
import sys

import numpy
import table
import torch
from torch.utils.data import DataLoader

EPOCHS = 2


def seed():
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    table.SHARED_LEVEL.value = table.LEVEL = 0
    table.OwnMethods.LEVEL, table.PADDING.length = 0, 1
    table.CHANGE(0), table.os.environ.pop("PLANTED_LEVEL", None)


def driven(case, workers, stays):
    """Prints of all batches, and what reading them again showed."""
    seed()
    data = case.make()
    # A stream would be read whole by each of two workers.
    workers = min(workers, 1) if isinstance(data, torch.utils.data.IterableDataset) else workers
    given = dict({} if {"batch_size", "batch_sampler"} & set(case.loader) else {"batch_size": 4}, **case.loader)
    loader = DataLoader(data, num_workers=workers, persistent_workers=bool(workers) and stays, **given)
    loader._headroom_own = case.own
    seen = []
    for epoch in range(EPOCHS):
        case.epoch(data, epoch)
        for number, batch in enumerate(loader):
            seen.append(prints.print_of(batch))
            case.step(data, number, batch)
    found = [one for one in batches.loaders if one["loader"] is loader]
    reader = found[0]["reader"]
    if reader is not None:
        reader.end()
    if loader._iterator is not None:
        # The hook keeps the loader, and so its workers.
        loader._iterator._shutdown_workers()
    return seen, reader and reader.facts


def is_refused(case):
    own, _ = driven(case, *case.own)
    have, facts = driven(case, 2, case.stays)
    is_other = not case.draws and own != have
    if "--verbose" in sys.argv:
        print(case.name, facts, "other batches" if is_other else "")
    return bool(facts["different"]) or is_other, facts


hook = sys.modules["_headroom_measure"].SHARED
prints = hook.part("prints")
(batches,) = [one.batches for one in hook.LOOP.listeners if hasattr(one, "batches")]
counts = []
for cases, wanted in [(table.WRONG, True), (table.RIGHT, False)]:
    verdicts = [(case, *is_refused(case)) for case in cases]
    for case, verdict, facts in verdicts:
        if verdict != wanted:
            print(f"{'refused' if verdict else 'PASSED'}: {case.name}: {facts}")
    counts += [sum(verdict == wanted for _, verdict, _ in verdicts), len(cases)]
print(f"wrong ones refused: {counts[0]} of {counts[1]}; right ones passed: {counts[2]} of {counts[3]}")
sys.exit(0 if counts[0] == counts[1] and counts[2] >= 0.9 * counts[3] else 1)
