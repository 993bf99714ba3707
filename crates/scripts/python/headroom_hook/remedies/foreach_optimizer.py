"""Makes optimizers update whole lists of parameters per call (`foreach=True`), which is the default on CUDA."""

NAME = "foreach-optimizer"
CLASS = "same"


def applies(facts):
    optimizers = [optimizer for optimizer in facts["optimizers"] if optimizer["has_foreach"]]
    if not optimizers:
        return "its optimizers have no such way"
    by_default = ("cuda", "xpu")
    needs = [one for one in optimizers if not one["fused"] and not one["foreach"]]
    needs = [one for one in needs if one["foreach"] is False or one["device"] not in by_default]
    return None if needs else "its optimizers do so already"


def install(hook):
    hook.at_first_step(lambda optimizer: change(hook, optimizer))


def change(hook, optimizer):
    name = type(optimizer).__name__
    for group in optimizer.param_groups:
        if "foreach" not in group:
            return hook.nothing(f"{name} has no foreach version")
        if group.get("fused"):
            return hook.nothing(f"{name} is fused already")
        if group.get("differentiable") or group["foreach"]:
            return hook.nothing(f"{name} uses foreach already, or is differentiated through")
        if group["foreach"] is None and all(parameter.is_cuda for parameter in group["params"]):
            return hook.nothing(f"{name} uses foreach by default on CUDA")
    for group in [*optimizer.param_groups, optimizer.defaults]:
        group["foreach"] = True
    hook.did(name, "told to update lists of parameters")
