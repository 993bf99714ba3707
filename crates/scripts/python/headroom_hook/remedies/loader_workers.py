"""Gives prefetching, persistent workers to DataLoaders that load in-process or have fewer workers than cores.

The order of samples is drawn in the script's process either way. A dataset that draws its own random numbers draws them
in the workers, from other seeds; the digests of batches show it. An iterable dataset gets one worker, since several
would each read all of it.
"""
import functools
import os

NAME = "loader-workers"
CLASS = "same"
# Batches that all workers together prefetch, and the most per worker: more only take memory.
AHEAD = 8
PREFETCH = 4
MOST = 16
# Workers that the script itself asked for, by data set: frameworks make loaders anew from ones that were changed.
OWN = {}


def applies(facts):
    loaders = facts["loaders"]
    if not loaders:
        return "no DataLoader is iterated"
    if all(loader["on_device"] for loader in loaders):
        return "its data is on the device already"
    if all(is_served(loader) for loader in loaders):
        return "its loaders have persistent workers that prefetch already"
    return None


def is_served(loader):
    enough = loader["workers"] >= (1 if loader["iterable"] else cores())
    return enough and loader["persistent"] and (loader["prefetch"] or 0) >= prefetch(loader["workers"])


def prefetch(workers):
    """Batches that each worker prefetches."""
    return min(PREFETCH, -(-AHEAD // max(1, workers)))


def install(hook):
    hook.when_loaded("torch.utils.data.dataloader", lambda module: replace(hook, module))


def replace(hook, module):
    original = module.DataLoader.__init__
    change = hook.guard(lambda *given: changed(hook, module, *given))

    @functools.wraps(original)
    def init(self, dataset, *arguments, **named):
        own = (asked_for(arguments, named), bool(named.get("persistent_workers")))
        original(self, dataset, *arguments, **(change(dataset, arguments, named) or named))
        # The data set is kept alive, so that no other gets its id.
        self._headroom_own = OWN.setdefault(id(dataset), (dataset, own))[1]

    module.DataLoader.__init__ = init


def asked_for(arguments, named):
    # Positions after the dataset: batch_size, shuffle, sampler, batch_sampler, num_workers.
    return arguments[4] if len(arguments) > 4 else named.get("num_workers", 0)


def changed(hook, module, dataset, arguments, named):
    workers = asked_for(arguments, named)
    if on_device(dataset):
        hook.nothing("its data is on the device already")
        return named
    named = dict(named)
    is_iterable = isinstance(dataset, module.IterableDataset)
    may_stay = not hasattr(dataset, "set_epoch") and not is_iterable
    done = []
    # The script decides how several workers share an iterable dataset.
    more = (workers or 1) if is_iterable else wanted(hook)
    if more > workers:
        if len(arguments) > 4:
            hook.nothing("the number of workers is given by position")
            return named
        workers = named["num_workers"] = more
        done.append(f"{workers} worker" + ("s" if workers > 1 else ""))
    if may_stay and not named.get("persistent_workers"):
        named["persistent_workers"] = True
        done.append("workers that stay" if not done else "kept between epochs")
    ahead = prefetch(workers)
    if (named.get("prefetch_factor") or 2) < ahead:
        named["prefetch_factor"] = ahead
        done.append(f"{ahead} batches ahead each")
    if done:
        hook.did("DataLoader", "got " + ", ".join(done))
    else:
        hook.nothing("its loaders have persistent workers that prefetch already")
    return named


def wanted(hook):
    return int(hook.value) if hook.value is not None else cores()


def cores():
    """Cores per process of the script, at most sixteen."""
    return max(1, min(MOST, SHARED.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def on_device(dataset):
    tensors = getattr(dataset, "tensors", ())
    return any(getattr(tensor, "device", None) is not None and tensor.device.type != "cpu" for tensor in tensors)
