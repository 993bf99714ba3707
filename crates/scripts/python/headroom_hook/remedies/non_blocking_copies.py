"""Makes copies of a loader's pinned batches to the device non-blocking.

Applies only to tensors that a DataLoader has just returned: nothing writes to them again, while the script may refill a
buffer of its own as soon as a copy returns. Copies from the device to the host stay as they are, since the host reads
the result.
"""
import functools
import sys

NAME = "non-blocking-copies"
CLASS = "same"
FRESH = "_headroom_fresh"


def applies(facts):
    if facts["machine"]["device"] != "cuda":
        return "there is no device to copy to"
    if not facts["loaders"]:
        return "no DataLoader is iterated"
    if all(loader["on_device"] for loader in facts["loaders"]):
        return "its data is on the device already"
    if not any(loader["pinned"] for loader in facts["loaders"]):
        return "no batch lies in pinned memory: loader-pinning comes first"
    return None


def install(hook):
    hook.when_loaded("torch.utils.data.dataloader", lambda module: mark_batches(hook, module))
    hook.nothing("no batch lay in pinned memory: loader-pinning comes first")


def mark_batches(hook, module):
    """Returns the function that leaves batches alone again."""
    iterator = module._BaseDataLoaderIter
    original = iterator.__next__
    undo = []
    mark = hook.guard(lambda batch: undo.extend(replace_copies(hook)) if mark_fresh(batch) else None)

    @functools.wraps(original)
    def following(self):
        batch = original(self)
        mark(batch)
        return batch

    iterator.__next__ = following

    def off():
        if iterator.__next__ is not following:
            raise RuntimeError("the loaders' iterator was replaced meanwhile")
        iterator.__next__ = original
        for one in undo:
            one()

    return off


def on(context):
    from torch.utils.data import dataloader

    return mark_batches(Silent(), dataloader)


class Silent:
    """Takes a hook's place where nothing is reported."""

    def guard(self, function):
        return function

    def said(self, sentence):
        pass

    def copies(self, frame):
        pass


def mark_fresh(batch, depth=0):
    """Marks tensors in pinned memory; returns whether there are any."""
    if hasattr(batch, "is_pinned"):
        is_fresh = batch.device.type == "cpu" and batch.is_pinned()
        if is_fresh:
            setattr(batch, FRESH, True)
        return is_fresh
    if depth < 4 and hasattr(batch, "values") and hasattr(batch, "keys"):
        return any([mark_fresh(value, depth + 1) for value in batch.values()])
    if depth < 4 and isinstance(batch, (list, tuple)):
        return any([mark_fresh(value, depth + 1) for value in batch])
    return False


def replace_copies(hook):
    """Called for each batch in pinned memory, so that scripts without one are not affected. Returns what undoes it."""
    import torch

    if hasattr(torch.Tensor.to, FRESH):
        return []
    original_to, original_cuda = torch.Tensor.to, torch.Tensor.cuda

    @functools.wraps(original_to)
    def to(self, *arguments, **named):
        # `to(device)`, `to(device, dtype)`, `to(dtype)` or `to(other)`; later positions are non_blocking and copy.
        if hasattr(self, FRESH) and not any(isinstance(argument, bool) for argument in arguments):
            if not named.get("non_blocking"):
                named["non_blocking"] = True
                hook.said("batches are copied without a wait")
                hook.copies(sys._getframe(1))
        return original_to(self, *arguments, **named)

    @functools.wraps(original_cuda)
    def cuda(self, *arguments, **named):
        if hasattr(self, FRESH) and len(arguments) < 2 and not named.get("non_blocking"):
            named["non_blocking"] = True
            hook.said("batches are copied without a wait")
            hook.copies(sys._getframe(1))
        return original_cuda(self, *arguments, **named)

    # Hides the wrappers from compilers.
    to._torchdynamo_disable = cuda._torchdynamo_disable = True
    setattr(to, FRESH, True)
    # Both are inherited: without ours, the class has none of its own.
    own = {name: vars(torch.Tensor).get(name) for name in ("to", "cuda")}
    torch.Tensor.to, torch.Tensor.cuda = to, cuda

    def put_back():
        for name, value in own.items():
            if value is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, value)

    return [put_back]
