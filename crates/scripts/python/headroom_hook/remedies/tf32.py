"""Runs fp32 GEMMs and convolutions on tensor cores in TF32, which keeps 10 bits of the mantissa."""

NAME = "tf32"
CLASS = "rounding"


def applies(facts):
    machine = facts["machine"]
    if machine["device"] != "cuda":
        return "TF32 runs on CUDA devices"
    if (machine["capability"] or [0])[0] < 8:
        return "the device has no TF32"
    if not any("float32" in module.get("dtypes", []) for module in facts["modules"]):
        return "its parameters are not fp32"
    if facts["settings"].get("tf32"):
        return "it is on already"
    return None


def install(hook):
    hook.set_and_keep_set(lambda module: switch(hook, module))


def switch(hook, module):
    import torch

    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    except RuntimeError:
        # The script uses PyTorch's newer names, which do not mix with the older ones.
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "tf32"
    if module is None or not next(module.parameters()).is_cuda:
        hook.nothing("no trained module was on a CUDA device")
    elif SHARED.part("facts").uses_tf32():
        hook.said("products of fp32 run in TF32")
