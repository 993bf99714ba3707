"""Stores convolution weights channels last, the best layout for tensor cores.

Images follow: a convolution with such a weight returns its result in the same layout.
"""

NAME = "channels-last"
CLASS = "rounding"


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
    import torch
    from torch import nn

    formats = {
        nn.Conv2d: torch.channels_last,
        nn.ConvTranspose2d: torch.channels_last,
        nn.Conv3d: torch.channels_last_3d,
        nn.ConvTranspose3d: torch.channels_last_3d,
    }
    found = False
    for part in module.modules():
        order = next((order for kind, order in formats.items() if isinstance(part, kind)), None)
        weight = getattr(part, "weight", None)
        if order is None or not isinstance(weight, nn.Parameter):
            continue
        found = True
        if weight.is_contiguous(memory_format=order):
            continue
        with torch.no_grad():
            # The parameter stays the same object: optimizers and tied weights refer to it.
            weight.data = weight.data.contiguous(memory_format=order)
            if weight.grad is not None:
                weight.grad = weight.grad.contiguous(memory_format=order)
        hook.did("weight", "laid out channels last")
    if not hook.counts:
        hook.nothing("its weights are channels last already" if found else f"{type(module).__name__} has no convolution")
