"""Makes optimizers update whole lists of parameters per call (`foreach=True`), which is the default on CUDA."""

NAME = "foreach-optimizer"
CLASS = "same"
ACTS_ON = "optimizer"
EXCLUDES = ("fused-optimizer",)


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
    why_not = obstacle(optimizer)
    if why_not:
        return hook.nothing(why_not)
    use_lists(optimizer)
    hook.did(type(optimizer).__name__, "told to update lists of parameters")
    return None


def on(context):
    undo = [use_lists(optimizer) for optimizer in context.optimizers if obstacle(optimizer) is None]
    if not undo:
        why = obstacle(context.optimizers[0]) if context.optimizers else "it has no optimizer"
        raise SHARED.part("switches").NothingToSwitch(why)
    return lambda: [one() for one in undo]


def obstacle(optimizer):
    name = type(optimizer).__name__
    for group in optimizer.param_groups:
        if "foreach" not in group:
            return f"{name} has no foreach version"
        if group.get("fused"):
            return f"{name} is fused already"
        if group.get("differentiable") or group["foreach"]:
            return f"{name} uses foreach already, or is differentiated through"
        if group["foreach"] is None and all(parameter.is_cuda for parameter in group["params"]):
            return f"{name} uses foreach by default on CUDA"
    return None


def use_lists(optimizer):
    """Returns the function that sets what was set before."""
    groups = [*optimizer.param_groups, optimizer.defaults]
    before = [(group, group.get("foreach")) for group in groups]
    for group in groups:
        group["foreach"] = True

    def off():
        for group, value in before:
            group["foreach"] = value

    return off
