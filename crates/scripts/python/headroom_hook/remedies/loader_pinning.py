"""Makes DataLoaders return batches in pinned memory, which copies to the device without staging."""
import functools

NAME = "loader-pinning"
CLASS = "same"


def applies(facts):
    if facts["machine"]["device"] != "cuda":
        return "no device reads pinned memory"
    if not facts["loaders"]:
        return "no DataLoader is iterated"
    if all(loader["pinned"] or loader["on_device"] for loader in facts["loaders"]):
        return "its loaders pin already"
    return None


def install(hook):
    hook.when_loaded("torch.utils.data.dataloader", lambda module: replace(hook, module))


def replace(hook, module):
    original = module.DataLoader.__init__
    change = hook.guard(lambda *given: changed(hook, *given))

    @functools.wraps(original)
    def init(self, dataset, *arguments, **named):
        original(self, dataset, *arguments, **(change(dataset, arguments, named) or named))

    module.DataLoader.__init__ = init


def changed(hook, dataset, arguments, named):
    import torch

    if not torch.cuda.is_available():
        hook.nothing("no device reads pinned memory")
        return named
    tensors = getattr(dataset, "tensors", ())
    if any(getattr(tensor, "is_cuda", False) for tensor in tensors):
        # Pinning a device tensor is an error.
        hook.nothing("its data is on the device already")
        return named
    # Positions after the dataset: batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory.
    if len(arguments) > 6 or named.get("pin_memory"):
        hook.nothing("its loaders pin already")
        return named
    hook.did("DataLoader", "got pinned memory")
    return dict(named, pin_memory=True)
