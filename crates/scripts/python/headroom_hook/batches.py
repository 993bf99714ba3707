"""Watches the batches that DataLoaders return: the samples, the script's wait, and a digest of the first batches.

Two runs with equal digests saw the same data in the same order. Digests are taken only during the warm-up, on the host
and before anything is copied to a device.

Loading that draws random numbers (augmentation, masking) draws others once workers do it. `draws_random` records that,
and HEADROOM_MEASURE_SHIFT_LOADING gives loading other numbers while the rest of the script keeps its own: the spread of
runs with shifts 1, 2, 3 ... is the yardstick for a loader with workers.
"""
import ctypes
import functools
import os
import signal
import sys
import time
import weakref
import zlib
from collections.abc import Mapping

# Bytes that a digest reads at the beginning and at the end of a large tensor.
MOST_BYTES = 1 << 22
# The most prefetched batches that a warm-up waits for, and the most workers whose bursts are timed twice.
MOST_AHEAD = 96
MOST_BURST = 24
# A queue that neither fills nor empties is watched until this many times its size was taken; `used_up` covers the rest.
MOST_ROUNDS = 2
SHIFT = int(os.environ.get("HEADROOM_MEASURE_SHIFT_LOADING", "0"))
REREADING = SHARED.part("rereading")
CUT = int(os.environ.get("HEADROOM_MEASURE_CUT", "0"))


def end_at_once(worker):
    """Ends a worker at the script's exit. PyTorch's handler would raise for a child that is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker.kill()


class Batches:
    def __init__(self, most_digests):
        self.most_digests = most_digests
        # A proof is not timed: every batch is looked at.
        self.is_proof = REREADING.IS_ON
        # Its workers are ended at the script's exit.
        self.ends_workers = self.is_proof
        self.clear()

    def clear(self):
        self.loaders = []
        self.known = {}
        self.samples = []
        self.waits = []
        self.step_samples = 0
        self.step_wait = 0.0
        self.is_digesting = True
        # The loader that returned the last batch.
        self.latest = None
        self.made = []
        self.epoch_ends = []
        self.restart_timing()

    def restart_timing(self):
        self.waits = []
        # Per timed step: batches that were ready, `None` if unknown; and batches taken before.
        self.ready = []
        self.taken_before = self.taken()

    def note_made(self):
        """Records a moment at which workers were busy, and how many batches of the first epoch were made by then."""
        for one in self.trained_on():
            iterator = one["iterator"]()
            if iterator is None or not one["workers"] or one["epochs"] != 1:
                continue
            waiting = ready(iterator)
            if waiting is not None and waiting < outstanding(iterator):
                self.made.append((time.perf_counter(), one["batches"] + waiting))

    def end_step(self, is_timed):
        self.note_made()
        self.samples.append(self.step_samples)
        if is_timed:
            self.waits.append(self.step_wait)
            self.ready.append(self.ready_now())
        self.step_samples, self.step_wait = 0, 0.0

    def watch(self):
        SHARED.when_loaded("torch.utils.data.dataloader", self.watch_iterators)
        if self.is_proof:
            SHARED.when_loaded("torch.utils.data._utils.fetch", REREADING.watch_fetchers)

    def watch_iterators(self, module):
        iterator = module._BaseDataLoaderIter
        self.watch_epochs(iterator)
        original_init, original_next, original_index = iterator.__init__, iterator.__next__, iterator._next_index

        @functools.wraps(original_init)
        def init(this, loader, *arguments, **named):
            original_init(this, loader, *arguments, **named)
            SHARED.guarded(self.began, this, loader)
            if SHIFT and loader.num_workers:
                # Before the workers start: the base class is initialized first.
                this._base_seed += 1_000_003 * SHIFT

        @functools.wraps(original_index)
        def index(this):
            drawn = original_index(this)
            reader = self.reader_of(this)
            if reader is not None and reader.is_wanted():
                return REREADING.Request(drawn)
            if SHIFT and not this._num_workers:
                # The sample order stays; loading then draws other numbers without advancing the script's generators.
                this._headroom_before = random_states()
                seed_all(1_000_003 * SHIFT + this._num_yielded)
                this._headroom_shifted = random_states()
            return drawn

        @functools.wraps(original_next)
        def following(this):
            is_watched = self.is_digesting and not this._num_workers
            before = random_states() if is_watched and not SHIFT else None
            SHARED.guarded(self.asked, this)
            begin = time.perf_counter()
            try:
                if CUT and self.is_cut(this):
                    raise StopIteration
                batch = original_next(this)
            except StopIteration:
                SHARED.guarded(self.ended_epoch, this)
                raise
            self.step_wait += time.perf_counter() - begin
            if type(batch) is REREADING.Evidence:
                self.reader_of(this).delivered(batch)
                batch = batch.batch
            SHARED.guarded(self.gave, this, batch)
            is_shifted = bool(SHIFT and not this._num_workers)
            # The first batch of an epoch may draw the order of samples.
            is_told = is_shifted or this._num_yielded > 1
            if is_watched and is_told and random_states() != (this._headroom_shifted if is_shifted else before):
                self.loaders[this._headroom_loader]["draws_random"] = True
            if is_shifted:
                restore(this._headroom_before)
            return batch

        iterator.__init__, iterator.__next__, iterator._next_index = init, following, index
        if self.ends_workers:
            # Older versions wait five seconds at the exit for each worker that stays and pins, in turn: 80 s for sixteen.
            module._MultiProcessingDataLoaderIter._clean_up_worker = staticmethod(end_at_once)

    def began(self, iterator, loader):
        import torch

        which = self.known.get(id(loader))
        if which is None or self.loaders[which]["loader"] is not loader:
            which = self.known[id(loader)] = len(self.loaders)
            dataset = loader.dataset
            self.loaders.append(
                {
                    # Kept alive, so that no other object gets its id.
                    "loader": loader,
                    "class": type(loader).__name__,
                    "dataset": type(dataset).__name__,
                    "batch_size": loader.batch_size,
                    "workers": loader.num_workers,
                    "persistent": bool(loader.persistent_workers),
                    "prefetch": loader.prefetch_factor,
                    "pinned": bool(loader.pin_memory),
                    "iterable": isinstance(dataset, torch.utils.data.IterableDataset),
                    "sampler": type(loader.sampler).__name__,
                    "epochs": 0,
                    "batches": 0,
                    "samples": 0,
                    "digests": [],
                    "on_device": False,
                    "draws_random": False,
                    # Whether the loop had to wait for a batch after the prefetched ones.
                    "waited": False,
                    "reader": REREADING.Reader(loader) if self.is_proof and loader.num_workers else None,
                    "cuts": 0,
                }
            )
        self.loaders[which]["epochs"] += 1
        self.loaders[which]["iterator"] = weakref.ref(iterator)
        iterator._headroom_loader = which
        self.began_epoch(iterator, True)

    # Epochs, which a proof may cut short.

    def watch_epochs(self, iterator):
        """Workers that stay begin later epochs with `_reset`."""
        original = iterator._reset

        @functools.wraps(original)
        def reset(this, loader, first_iter=False):
            if not first_iter:
                SHARED.guarded(self.began_epoch, this, False)
            original(this, loader, first_iter)
            if self.is_proof and not first_iter:
                # An iterator that is made anew draws a seed for its workers. Without it, the order of the next epoch
                # would be another one, drawn as well, and nothing could be compared.
                import torch

                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)

        iterator._reset = reset

    def began_epoch(self, iterator, is_first):
        iterator._headroom_step = len(self.samples)
        reader = self.reader_of(iterator)
        if reader is not None:
            reader.began(is_first)

    def reader_of(self, iterator):
        """`None` outside of proofs, without workers, and for an iterator that was not seen to begin."""
        which = getattr(iterator, "_headroom_loader", None)
        return None if which is None else self.loaders[which]["reader"]

    def is_cut(self, iterator):
        """Whether the epoch ends here: after enough steps, or enough batches where nothing is trained."""
        import torch

        which = getattr(iterator, "_headroom_loader", None)
        if which is None:
            return False
        facts = self.loaders[which]
        half = max(1, CUT // 2)
        steps = len(self.samples) - iterator._headroom_step
        is_training = bool(steps) or torch.is_grad_enabled()
        is_over = steps >= (half if facts["cuts"] else CUT) if is_training else iterator._num_yielded >= half
        facts["cuts"] += is_over and is_training
        return is_over

    def ended_epoch(self, iterator):
        if len(self.samples) > iterator._headroom_step:
            # Otherwise nothing was trained on it.
            self.epoch_ends.append(len(self.samples))

    def asked(self, iterator):
        facts = self.loaders[iterator._headroom_loader]
        if not facts["waited"] and facts["batches"] >= depth(facts) and ready(iterator) == 0:
            facts["waited"] = True

    def gave(self, iterator, batch):
        facts = self.loaders[iterator._headroom_loader]
        count = samples_of(batch)
        self.latest = facts["loader"]
        facts["batches"] += 1
        facts["samples"] += count
        self.step_samples += count
        if self.is_digesting and len(facts["digests"]) < self.most_digests:
            facts["digests"].append(digest(batch))
            facts["on_device"] = facts["on_device"] or any(tensor.device.type != "cpu" for tensor in tensors_in(batch))

    def trained_on(self):
        """The loader of the last batch, if any; others are for evaluation."""
        return [one for one in self.loaders if one["batches"] and one["loader"] is self.latest]

    def workers(self):
        """The number of workers, limited so that the steps they require do not take long."""
        return min(MOST_BURST, max([one["workers"] for one in self.trained_on()], default=0))

    def has_ahead(self, timed):
        """Whether the loop still takes batches that workers prefetched before it could wait for them: such steps hide a
        slow loader. This ends once the loop has waited for a batch, or workers fill the queue as fast as it is emptied.
        If the epoch is too short to time steps after them, they are timed anyway."""
        for one in [] if self.is_proof else self.trained_on():
            if one["epochs"] != 1 or not one["workers"] or one["waited"]:
                continue
            try:
                if len(one["loader"]) - one["batches"] < max(timed, 2 * self.workers()) + 2:
                    continue
            except TypeError:
                # An iterable dataset has no length.
                pass
            ahead = min(MOST_AHEAD, depth(one))
            if one["batches"] <= ahead:
                return True
            waiting = ready(one["iterator"]())
            is_filled = waiting is None or waiting >= depth(one) - one["workers"]
            if not is_filled and one["batches"] <= MOST_ROUNDS * ahead:
                return True
        return False

    def taken(self):
        return sum(one["batches"] for one in self.trained_on())

    def ready_now(self):
        """Ready batches; `None` without workers, and near the end of an epoch, when workers have nothing left to do."""
        for one in self.trained_on():
            iterator = one["iterator"]()
            if iterator is not None and one["workers"] and outstanding(iterator) >= depth(one) - 1:
                return ready(iterator)
        return None

    def used_up(self):
        """Batches that the timed steps took, and how many of them workers did not replace meanwhile: with a slow loader
        a step takes longer by that share. `None` if unknown. Compares the means of two halves, so that bursts of
        workers do not look like a trend."""
        half = len(self.ready) // 2
        taken = self.taken() - self.taken_before
        if not half or taken < 4 or any(count is None for count in self.ready):
            return None
        first, second = self.ready[:half], self.ready[-half:]
        fewer = (sum(first) - sum(second)) / half * len(self.ready) / (len(self.ready) - half)
        is_trend = fewer >= max(2.0, 0.1 * taken)
        return {"taken": taken, "used_up": min(fewer, taken - 1.0) if is_trend else 0.0}

    def making_seconds(self):
        """Time that workers need for the batches of a step, from the part of the first epoch in which they were busy;
        `None` if that was too short."""
        if len(self.made) < 2 or not self.waits:
            return None
        (begin, before), (end, after) = self.made[0], self.made[-1]
        per_step = (self.taken() - self.taken_before) / len(self.waits)
        return per_step * (end - begin) / (after - before) if after - before >= 4 else None

    def facts(self):
        hidden = ("loader", "iterator", "waited", "reader", "cuts")
        shown = [{key: value for key, value in one.items() if key not in hidden} for one in self.loaders]
        return [dict(facts, reread=one["reader"] and one["reader"].facts) for facts, one in zip(shown, self.loaders)]


def depth(facts):
    """The most batches that workers prefetch."""
    return facts["workers"] * (facts["prefetch"] or 2)


def ready(iterator):
    """Batches that workers have made and the loop has not taken; `None` if unknown."""
    try:
        count = iterator._worker_result_queue.qsize()
        if iterator._data_queue is not iterator._worker_result_queue:
            count += iterator._data_queue.qsize()
        # Batches that arrived out of order.
        return count + sum(1 for info in iterator._task_info.values() if len(info) == 2)
    except (AttributeError, NotImplementedError, OSError, TypeError):
        return None


def outstanding(iterator):
    """Batches that were requested from workers and the loop has not taken."""
    return getattr(iterator, "_send_idx", 0) - getattr(iterator, "_rcvd_idx", 0)


def random_states():
    """Comparable states of the generators that loading may draw from."""
    import random

    import torch

    numpy = sys.modules.get("numpy")
    # Bytes instead of arrays, which do not compare to a single bool.
    of_numpy = numpy.random.get_state() if numpy is not None else None
    plain = of_numpy and (of_numpy[1].tobytes(), of_numpy[2:])
    state = torch.get_rng_state()
    return States((bytes(state.numpy()) if numpy else tuple(state.tolist()), plain, random.getstate()), state, of_numpy)


class States:
    def __init__(self, plain, of_torch, of_numpy):
        self.plain, self.of_torch, self.of_numpy = plain, of_torch, of_numpy

    def __eq__(self, other):
        return self.plain == other.plain


def seed_all(seed):
    import random

    import torch

    random.seed(seed)
    torch.random.default_generator.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % (1 << 32))


def restore(states):
    import random

    import torch

    random.setstate(states.plain[2])
    torch.set_rng_state(states.of_torch)
    if states.of_numpy is not None:
        sys.modules["numpy"].random.set_state(states.of_numpy)


def leaves(batch, depth=0):
    """Tensors and plain values of a batch, in order."""
    if hasattr(batch, "data_ptr") and hasattr(batch, "shape"):
        yield batch
    elif depth > 6:
        yield type(batch).__name__
    elif isinstance(batch, Mapping):
        for key in batch:
            yield from leaves(batch[key], depth + 1)
    elif isinstance(batch, (list, tuple)):
        for item in batch:
            yield from leaves(item, depth + 1)
    elif isinstance(batch, (str, bytes, int, float, bool, type(None))):
        yield batch
    elif hasattr(batch, "tobytes") and hasattr(batch, "shape"):
        yield batch
    elif hasattr(batch, "__dict__"):
        yield from leaves(vars(batch), depth + 1)
    else:
        yield type(batch).__name__


def tensors_in(batch):
    return [leaf for leaf in leaves(batch) if hasattr(leaf, "data_ptr")]


def samples_of(batch):
    """The first dimension of the first tensor, or the number of items in a list of anything else."""
    if isinstance(batch, (list, tuple)) and batch and all(isinstance(item, (Mapping, list, tuple)) for item in batch):
        first = [leaf.shape[0] for leaf in leaves(batch[0]) if hasattr(leaf, "data_ptr") and leaf.dim()]
        # Views or targets of the same samples are a tuple of batches; a list of samples has no common first dimension.
        return first[0] if isinstance(batch, tuple) and first else len(batch)
    for leaf in leaves(batch):
        if hasattr(leaf, "shape") and len(leaf.shape):
            return int(leaf.shape[0])
    return len(batch) if hasattr(batch, "__len__") else 1


def digest(batch):
    return " ".join(digest_of(leaf) for leaf in leaves(batch))


def digest_of(leaf):
    if hasattr(leaf, "data_ptr"):
        kind = f"{'x'.join(map(str, leaf.shape))}:{str(leaf.dtype).replace('torch.', '')}"
        if leaf.device.type != "cpu" or leaf.layout.__repr__() != "torch.strided":
            return f"{kind}:{leaf.device.type}"
        return f"{kind}:{checksum(leaf):08x}"
    if hasattr(leaf, "tobytes"):
        return f"{leaf.shape}:{leaf.dtype}:{zlib.crc32(leaf.tobytes()):08x}"
    return f"{type(leaf).__name__}:{zlib.crc32(repr(leaf).encode()):08x}"


def checksum(tensor):
    plain = tensor.detach().contiguous()
    count = plain.numel() * plain.element_size()
    if count <= 2 * MOST_BYTES:
        return zlib.crc32(ctypes.string_at(plain.data_ptr(), count)) if count else 0
    beginning = zlib.crc32(ctypes.string_at(plain.data_ptr(), MOST_BYTES))
    return zlib.crc32(ctypes.string_at(plain.data_ptr() + count - MOST_BYTES, MOST_BYTES), beginning)
