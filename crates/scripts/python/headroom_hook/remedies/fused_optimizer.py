"""Makes optimizers update all parameters in one kernel (`fused=True`), if PyTorch has one for them."""

NAME = "fused-optimizer"
CLASS = "rounding"
ACTS_ON = "optimizer"
EXCLUDES = ("foreach-optimizer",)
SCALING = "_step_supports_amp_scaling"
# The first fused step leaves the second.
ATTRIBUTES = (SCALING, "_need_device_dtype_check_for_fused")
ABSENT = object()


def applies(facts):
    optimizers = facts["optimizers"]
    if not any(optimizer["has_fused"] for optimizer in optimizers):
        return "PyTorch has no fused kernel for its optimizers"
    if all(optimizer["fused"] for optimizer in optimizers if optimizer["has_fused"]):
        return "its optimizers are fused already"
    return None


def install(hook):
    hook.at_first_step(lambda optimizer: fuse(hook, optimizer))


def fuse(hook, optimizer):
    why_not = obstacle(optimizer)
    if why_not:
        hook.nothing(why_not)
        return
    change(optimizer)
    hook.did(type(optimizer).__name__, "fused into one kernel")


def obstacle(optimizer):
    import torch
    from torch.utils._foreach_utils import _get_fused_kernels_supported_devices as supported

    name = type(optimizer).__name__
    groups = optimizer.param_groups
    if not all("fused" in group for group in groups):
        return f"PyTorch has no fused kernel for {name}"
    if all(group["fused"] for group in groups):
        return f"{name} is fused already"
    if any(group.get("differentiable") for group in groups):
        return f"{name} is differentiated through"
    devices = ["cpu"] if isinstance(optimizer, torch.optim.Adagrad) else supported()
    for parameter in (parameter for group in groups for parameter in group["params"]):
        if parameter.device.type not in devices or not torch.is_floating_point(parameter):
            return f"a parameter of {name} is not a floating-point tensor on a device with such kernels"
        if parameter.grad is not None and parameter.grad.is_sparse:
            return f"a gradient of {name} is sparse"
        if isinstance(optimizer.state.get(parameter, {}).get("step"), (int, float)):
            return f"{name} resumed a state of an old PyTorch"
    return None


def on(context):
    undo = [change(optimizer) for optimizer in context.optimizers if obstacle(optimizer) is None]
    if not undo:
        why = obstacle(context.optimizers[0]) if context.optimizers else "it has no optimizer"
        raise SHARED.part("switches").NothingToSwitch(why)
    return lambda: [one() for one in undo]


def change(optimizer):
    """Returns the function that changes it back."""
    groups = [*optimizer.param_groups, optimizer.defaults]
    before = [(group, group.get("fused"), group.get("foreach")) for group in groups]
    own = {name: vars(optimizer).get(name, ABSENT) for name in ATTRIBUTES}
    for group in groups:
        group["fused"], group["foreach"] = True, False
    # As the constructor does for `fused=True`: a scaler leaves unscaling to the kernel.
    setattr(optimizer, SCALING, True)
    places = {}
    for parameter, state in optimizer.state.items():
        # A state made by another version has its step count on the host, where the kernel cannot read it.
        if isinstance(state, dict) and hasattr(state.get("step"), "to"):
            places[parameter] = state["step"].device
            state["step"] = state["step"].to(device=parameter.device)

    def off():
        for group, fused, foreach in before:
            group["fused"], group["foreach"] = fused, foreach
        for name, value in own.items():
            vars(optimizer).pop(name, None)
            if value is not ABSENT:
                setattr(optimizer, name, value)
        for parameter, state in optimizer.state.items():
            # On the device, every later step that is not fused would wait for it; a state made meanwhile has it there too.
            if isinstance(state, dict) and hasattr(state.get("step"), "to"):
                state["step"] = state["step"].to(device=places.get(parameter, host_unless_capturable(optimizer, parameter)))

    return off


def host_unless_capturable(optimizer, parameter):
    group = next(group for group in optimizer.param_groups if any(one is parameter for one in group["params"]))
    return parameter.device if group.get("capturable") else "cpu"
