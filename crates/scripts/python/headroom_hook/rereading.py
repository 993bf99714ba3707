"""Reads batches that loader workers delivered a second time, as the unchanged script would have read them.

A worker has a copy of the data set from the moment it was started. A script that changes the data set afterwards (a
level per epoch, hard samples that it found) changes its own copy only, and no figure of the batches shows it: losses
stay finite, shapes and counts stay the same.

With HEADROOM_MEASURE_REREAD=1 each request to a worker asks for evidence (`Request`): the states of the random
generators before every sample that is chosen, the sample's print (shape, type and checksum of each part) and prints of
the data set's fields. It comes back with the batch (`Evidence`). Before the script gets the batch, the samples are read
again from these states, in a fork of the script's process. The fork has the data set as the script has it now, and what
reading changes there (caches, open files) does not reach the script. Where the script's own loader has workers, the
fork is made when those would have been started.

Prints that differ are a fault. Fields that differ as well name its cause. A sample that differs between two such reads
draws from what cannot be restored (the system's entropy, the time): only the parts that agree between both are compared.
An iterable data set cannot be read twice: fields that the script changed since the workers started count for it.
"""
import functools
import gc
import os
import pickle
import select
import signal
import sys
import time

PRINTS = SHARED.part("prints")
# Elsewhere samples are read in the script's process itself: macOS has forks, but its libraries do not survive them.
CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"
IS_ON = os.environ.get("HEADROOM_MEASURE_REREAD") == "1"
# Samples of a batch that are read again if the whole batch would take longer than this.
SAMPLES = 4
WHOLE_SECONDS = 0.5
# The most batches that are read again, the seconds that this may take in all, and those that one may take.
MOST_BATCHES = 64
MOST_SECONDS = 20.0
PATIENCE = 15.0
# The first batches of every epoch are read again, then one in this many; none once this many samples were wrong.
FIRST = 4
EVERY = 4
ENOUGH = 16
# Fields that name the cause.
MOST_NAMED = 4


class Request:
    """What a worker is asked for, with evidence."""

    __slots__ = ("index",)

    def __init__(self, index):
        self.index = index

    def __reduce__(self):
        return Request, (self.index,)


class Evidence:
    """A worker's batch, and how it was read."""

    def __init__(self, batch, facts):
        self.batch, self.facts = batch, facts

    def pin_memory(self, *arguments):
        from torch.utils.data._utils.pin_memory import pin_memory

        self.batch = pin_memory(self.batch, *arguments)
        return self


# In the worker.


def watch_fetchers(module):
    watch_fetcher(module._MapDatasetFetcher, read_with_evidence)
    watch_fetcher(module._IterableDatasetFetcher, read_iterable)


def watch_fetcher(owner, read):
    original = owner.fetch

    @functools.wraps(original)
    def fetch(self, given):
        return read(self, given.index, original) if type(given) is Request else original(self, given)

    owner.fetch = fetch


def read_iterable(fetcher, index, original):
    return Evidence(original(fetcher, index), {"index": None})


def read_with_evidence(fetcher, index, original):
    dataset = fetcher.dataset
    facts = {"index": index, "samples": [], "begun": states(), "is_alone": is_alone(fetcher)}
    facts["fields"] = PRINTS.fields_of(dataset, fetcher.collate_fn)
    begin = time.perf_counter()
    if facts["is_alone"]:
        batch = original(fetcher, index)
    else:
        chosen = spread_over(len(index))
        read = []
        for position, which in enumerate(index):
            before = states() if position in chosen else None
            read.append(dataset[which])
            if before is not None:
                facts["samples"].append((position, before, PRINTS.print_of(read[-1])))
        batch = fetcher.collate_fn(read)
    facts["seconds"] = time.perf_counter() - begin
    facts["whole"] = PRINTS.print_of(batch)
    return Evidence(batch, facts)


def is_alone(fetcher):
    """Whether the batch is read in one piece: without collation, or by a data set that reads lists."""
    return not fetcher.auto_collation or bool(getattr(fetcher.dataset, "__getitems__", None))


def spread_over(count):
    return {round(at * (count - 1) / (SAMPLES - 1)) for at in range(SAMPLES)} if count > SAMPLES else set(range(count))


# In the script's process.


class Reader:
    """Reads the batches of one loader again."""

    def __init__(self, loader):
        self.loader = loader
        # Workers that the script itself asked for, before a remedy changed it.
        workers, persistent = getattr(loader, "_headroom_own", (loader.num_workers, loader.persistent_workers))
        self.follows = "now" if not workers or not CAN_FORK else "start" if persistent else "epoch"
        self.server = None
        self.at_start = {}
        self.named = set()
        self.asked = 0
        self.facts = {
            "batches": 0,
            "samples": 0,
            "different": 0,
            # Samples of which only parts could be compared, and batches that could not be read again, and why.
            "partly": 0,
            "unread": 0,
            "why": None,
            "example": None,
            "fields": [],
        }
        self.spent = 0.0

    def is_wanted(self):
        """Whether evidence is wanted for the next request: for the first ones of an epoch, then for some."""
        number, self.asked = self.asked, self.asked + 1
        is_open = self.facts["batches"] + self.facts["unread"] < MOST_BATCHES and self.spent < MOST_SECONDS
        return is_open and self.facts["different"] < ENOUGH and (number < FIRST or number % EVERY == 0)

    def began(self, is_first):
        """Called before an epoch's first batch is requested; `is_first`: workers are started."""
        self.asked = 0
        if is_first:
            self.at_start = PRINTS.fields_of(self.loader.dataset, self.loader.collate_fn)
        if self.follows == "epoch" or self.follows == "start" and self.server is None:
            self.end()
            self.server = Server(self)

    def end(self):
        if self.server is not None:
            self.server.end()
            self.server = None

    def ask(self, what, *arguments):
        if self.server is not None:
            return self.server.ask(what, *arguments)
        return in_a_fork(lambda: getattr(self, what)(*arguments))

    def delivered(self, evidence):
        begin = time.perf_counter()
        try:
            self.compare(evidence.facts)
        except Exception as error:  # noqa: BLE001
            self.could_not(f"{type(error).__name__}: {error}")
        self.spent += time.perf_counter() - begin

    def could_not(self, why):
        self.facts["unread"] += 1
        self.facts["why"] = self.facts["why"] or why[:200]

    def compare(self, given):
        if given["index"] is None:
            self.could_not("an iterable data set cannot be read twice")
            changed = PRINTS.differing(self.at_start, self.ask("fields_now"))
            if changed:
                self.facts["different"] += 1
                self.name(changed, "when the workers started")
            return
        is_whole = given["is_alone"] or given["seconds"] <= WHOLE_SECONDS
        count = len(given["index"]) if isinstance(given["index"], (list, tuple)) else 1
        wanted = {"whole": given["whole"]} if is_whole else {at: seen for at, _, seen in given["samples"]}
        had = self.ask("read", given, is_whole)
        self.facts["batches"] += 1
        wrong = [at for at, seen in wanted.items() if had.get(at) != seen]
        if not wrong:
            self.facts["samples"] += count if is_whole else len(wanted)
            return
        if is_whole and given["samples"]:
            # Finds the samples that differ; none, if it is collation.
            wanted = {at: seen for at, _, seen in given["samples"]}
            of_samples = self.ask("read", given, False)
            wrong = [at for at, seen in wanted.items() if of_samples.get(at) != seen] or wrong
            if wrong != ["whole"]:
                had = of_samples
            else:
                wanted = {"whole": given["whole"]}
        again = self.ask("read", given, "whole" in wanted)
        for at in wrong:
            steady = [part for part, (one, other) in enumerate(zip(had[at], again[at])) if one == other]
            is_steady = len(steady) == len(had[at]) == len(again[at])
            if is_steady or len(had[at]) != len(wanted[at]) or any(wanted[at][part] != had[at][part] for part in steady):
                self.facts["different"] += 1
                self.facts["example"] = self.facts["example"] or self.described(given, at, wanted[at], had[at])
                self.name(PRINTS.differing(given["fields"], self.ask("fields_now")), "in the workers")
            else:
                self.facts["partly"] += 1
                self.facts["why"] = self.facts["why"] or "samples draw from what no seed restores"
        self.facts["samples"] += len(wanted)

    def described(self, given, at, worker, own):
        what = "a batch" if at == "whole" else f"sample {PRINTS.shortened(repr(given['index'][at]))}"
        first = next((pair for pair in zip(worker, own) if pair[0] != pair[1]), (f"{len(worker)} parts", f"{len(own)} parts"))
        return f"{what} is {first[0]} from the workers and {first[1]} from the script"

    def name(self, changed, where):
        for name, (worker, own) in changed:
            if name in self.named or len(self.named) >= MOST_NAMED:
                continue
            self.named.add(name)
            if worker == own:
                self.facts["fields"].append(f"`{name}` is {own} {where} and another in the script")
            else:
                self.facts["fields"].append(f"`{name}` is {worker} {where} and {own} in the script")

    # In the fork.

    def fields_now(self):
        return PRINTS.fields_of(self.loader.dataset, self.loader.collate_fn)

    def read(self, given, is_whole):
        """Prints by position in the batch, or of the whole."""
        dataset, index = self.loader.dataset, given["index"]
        if not is_whole:
            return {at: self.read_one(dataset, index[at], before) for at, before, _ in given["samples"]}
        restore(given["begun"])
        if not given["is_alone"]:
            read = [dataset[which] for which in index]
        elif self.loader._auto_collation:
            read = dataset.__getitems__(index)
        else:
            read = dataset[index]
        return {"whole": PRINTS.print_of(self.loader.collate_fn(read))}

    def read_one(self, dataset, which, before):
        restore(before)
        return PRINTS.print_of(dataset[which])


class Server:
    """A fork that keeps the data set as it is now, and reads from it in forks of its own."""

    def __init__(self, reader):
        ask, self.write = os.pipe()
        self.answers, answer = os.pipe()
        self.child = os.fork()
        if not self.child:
            os.close(self.write)
            try:
                self.serve(reader, ask, answer)
            finally:
                os._exit(0)
        os.close(ask)
        os.close(answer)

    @staticmethod
    def serve(reader, ask, answer):
        while True:
            asked = receive(ask, None)
            if asked is None:
                return
            what, arguments = pickle.loads(asked)
            try:
                found = in_a_fork(lambda: getattr(reader, what)(*arguments))
            except RuntimeError as error:
                found = error
            send(answer, pickle.dumps(found))

    def ask(self, what, *arguments):
        send(self.write, pickle.dumps((what, arguments)))
        found = receive(self.answers, PATIENCE + 5.0)
        found = RuntimeError("the fork ended") if found is None else pickle.loads(found)
        if isinstance(found, Exception):
            raise found
        return found

    def end(self):
        os.close(self.write)
        os.close(self.answers)
        kill(self.child)


def in_a_fork(function):
    """The function's result from a fork of this process; without forks, from the process itself."""
    if not CAN_FORK:
        kept = states()
        try:
            return function()
        finally:
            restore(kept)
    source, sink = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            os.close(source)
            # A collection would touch every object, and so copy all memory.
            gc.disable()
            # As in a worker: threads do not survive a fork.
            import torch

            torch.set_num_threads(1)
            try:
                found = (True, function())
            except BaseException as error:  # noqa: BLE001
                found = (False, f"{type(error).__name__}: {error}")
            send(sink, pickle.dumps(found))
        finally:
            os._exit(0)
    os.close(sink)
    try:
        found = receive(source, PATIENCE)
    finally:
        os.close(source)
        kill(child)
    if found is None:
        raise RuntimeError(f"no answer within {PATIENCE:.0f} s")
    is_well, result = pickle.loads(found)
    if not is_well:
        raise RuntimeError(result)
    return result


def kill(child):
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except OSError:
        pass


def send(sink, content):
    content = len(content).to_bytes(8, "little") + content
    while content:
        content = content[os.write(sink, content) :]


def receive(source, patience):
    """One message; `None` at the end, or when `patience` seconds have passed."""
    until = None if patience is None else time.monotonic() + patience
    content, wanted = b"", None
    while wanted is None or len(content) < wanted:
        if until is not None and not select.select([source], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        piece = os.read(source, 1 << 20)
        if not piece:
            return None
        content += piece
        if wanted is None and len(content) >= 8:
            wanted, content = int.from_bytes(content[:8], "little"), content[8:]
    return content


# States of the random generators, as plain values.


def states():
    import random

    import torch

    numpy = sys.modules.get("numpy")
    return random.getstate(), bytes(torch.get_rng_state().tolist()), numpy.random.get_state() if numpy else None


def restore(kept):
    import random

    import torch

    random.setstate(kept[0])
    torch.set_rng_state(torch.frombuffer(bytearray(kept[1]), dtype=torch.uint8))
    if kept[2] is not None and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(kept[2])
