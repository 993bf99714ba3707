"""Lets the allocator grow its segments (`expandable_segments:True`) instead of adding new ones: less fragmentation."""
import os

NAME = "expandable-segments"
CLASS = "same"
SETTING = "expandable_segments"


def applies(facts):
    if facts["machine"]["device"] != "cuda":
        return "PyTorch's allocator works on CUDA devices"
    if any(SETTING in os.environ.get(name, "") for name in NAMES):
        return "it is set already"
    return None


# Every PyTorch reads the older name; the newer one wins if both are set.
NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def install(hook):
    if any(SETTING in os.environ.get(name, "") for name in NAMES):
        return hook.nothing("it is set already")
    # The allocator reads it before its first allocation, long after this.
    name = next((name for name in NAMES if os.environ.get(name)), NAMES[-1])
    before = os.environ.get(name)
    os.environ[name] = f"{before},{SETTING}:True" if before else f"{SETTING}:True"
    hook.at_first_forward(lambda module, arguments, named: confirm(hook, module))
    return hook.nothing("no trained module was on a CUDA device")


def confirm(hook, module):
    parameter = next(module.parameters(), None)
    if parameter is not None and parameter.is_cuda:
        hook.said("the allocator grows its segments")
