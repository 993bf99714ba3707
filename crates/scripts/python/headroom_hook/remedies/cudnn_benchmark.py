"""Lets cuDNN time its algorithms for each new shape and use the fastest (`torch.backends.cudnn.benchmark`)."""

NAME = "cudnn-benchmark"
CLASS = "rounding"
# The first step times the algorithms.
SETTLE = 2


def applies(facts):
    if facts["machine"]["device"] != "cuda":
        return "cuDNN runs on CUDA devices"
    if not any(module.get("convolutions") for module in facts["modules"]):
        return "it has no convolution"
    if facts["settings"].get("cudnn_benchmark"):
        return "it is on already"
    return None


def install(hook):
    hook.set_and_keep_set(lambda module: switch(hook, module))


def switch(hook, module):
    import torch

    torch.backends.cudnn.benchmark = True
    if module is not None and next(module.parameters()).is_cuda:
        hook.said("cuDNN chooses its algorithms by timing them")
    else:
        hook.nothing("no trained module was on a CUDA device")


def on(context):
    import torch

    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True

    def off():
        torch.backends.cudnn.benchmark = before

    return off
