"""Makes optimizers update all parameters in one kernel (`fused=True`), if PyTorch has one for them."""

NAME = "fused-optimizer"
CLASS = "rounding"


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
    for group in [*optimizer.param_groups, optimizer.defaults]:
        group["fused"], group["foreach"] = True, False
    # As the constructor does for `fused=True`: a scaler leaves unscaling to the kernel.
    optimizer._step_supports_amp_scaling = True
    for parameter, state in optimizer.state.items():
        # A resumed state has its step count on the host, where the kernel cannot read it.
        if isinstance(state, dict) and hasattr(state.get("step"), "to"):
            state["step"] = state["step"].to(device=parameter.device)
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
