"""Stores convolution weights channels last, the best layout for tensor cores.

Images follow: a convolution with such a weight returns its result in the same layout.
"""

NAME = "channels-last"
CLASS = "rounding"
GUARDED = True
# Dropout draws in the order of memory.
RANDOM = "other"
SETTLE = 2


def applies(facts):
    modules = facts["modules"]
    if not any(module.get("convolutions") for module in modules):
        return "it has no convolution"
    if any(module.get("channels_last") for module in modules):
        return "its weights are channels last already"
    return None


def install(hook):
    hook.at_first_forward(lambda module, arguments, named: lay_out(hook, module))


def lay_out(hook, module):
    found = weights_of(module)
    for weight, order in found:
        if not weight.is_contiguous(memory_format=order):
            move(weight, weight.data.contiguous(memory_format=order), [])
            hook.did("weight", "laid out channels last")
    if not hook.counts:
        hook.nothing("its weights are channels last already" if found else f"{type(module).__name__} has no convolution")


def on(context):
    """Both storages of a weight are kept, so that addresses seen by compiled code stay valid."""
    found = [pair for module in context.modules for pair in weights_of(module)]
    changed = [(weight, order) for weight, order in found if not weight.is_contiguous(memory_format=order)]
    if not changed:
        why = "its weights are channels last already" if found else "it has no convolution"
        raise SHARED.part("switches").NothingToSwitch(why)
    kept = context.store.setdefault(NAME, {})
    before = [(weight, weight.data) for weight, _ in changed]
    for weight, order in changed:
        if id(weight) not in kept:
            kept[id(weight)] = weight.data.contiguous(memory_format=order)
        move(weight, kept[id(weight)].copy_(weight.data), context.optimizers)

    def off():
        for weight, storage in before:
            move(weight, storage.copy_(weight.data), context.optimizers)

    return off


def move(weight, storage, optimizers):
    """The parameter stays the same object: optimizers and tied weights refer to it. Its gradient and its optimizer's state
    get its strides, since fused kernels read them in one order."""
    weight.data = storage
    if weight.grad is not None:
        weight.grad = like(weight.grad, storage)
    for optimizer in optimizers:
        state = optimizer.state.get(weight, {})
        for name, value in state.items():
            if getattr(value, "shape", None) == weight.shape:
                state[name] = like(value, storage)


def like(tensor, storage):
    import torch

    if tensor.stride() == storage.stride():
        return tensor
    return torch.empty_like(storage, dtype=tensor.dtype).copy_(tensor)


def weights_of(module):
    """Weights of convolutions, each once, with the layout that is best for it."""
    import torch
    from torch import nn

    formats = {
        nn.Conv2d: torch.channels_last,
        nn.ConvTranspose2d: torch.channels_last,
        nn.Conv3d: torch.channels_last_3d,
        nn.ConvTranspose3d: torch.channels_last_3d,
    }
    found = {}
    for part in module.modules():
        order = next((order for kind, order in formats.items() if isinstance(part, kind)), None)
        weight = getattr(part, "weight", None)
        if order is not None and isinstance(weight, nn.Parameter):
            found[id(weight)] = (weight, order)
    return list(found.values())
