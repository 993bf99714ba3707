"""Runs fp32 GEMMs and convolutions on tensor cores in TF32, which keeps 10 bits of the mantissa."""

NAME = "tf32"
CLASS = "rounding"
# Guards of compiled code see it, and one rounding moves a product by this share.
GUARDED = True
UNIT = 5e-4


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
    allow()
    if module is None or not next(module.parameters()).is_cuda:
        hook.nothing("no trained module was on a CUDA device")
    elif SHARED.part("facts").uses_tf32():
        hook.said("products of fp32 run in TF32")


def on(context):
    return allow()


def allow():
    """Returns the function that sets what was set before."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    try:
        old = ((matmul, "allow_tf32", matmul.allow_tf32), (cudnn, "allow_tf32", cudnn.allow_tf32))
        set_all((owner, name, True) for owner, name, _ in old)
    except RuntimeError:
        # The script uses PyTorch's newer names, which do not mix with the older ones.
        owners = (matmul, cudnn.conv)
        old = tuple((owner, "fp32_precision", owner.fp32_precision) for owner in owners)
        set_all((owner, name, "tf32") for owner, name, _ in old)
    return lambda: set_all(old)


def set_all(settings):
    for owner, name, value in settings:
        setattr(owner, name, value)
