"""One update of the optimizers from equal gradients, with and without a remedy: weights and state are compared and put
back."""
import inspect
import math

# Relative difference of an update or a state that rounding explains, beside the rounding of the weights themselves.
LIMIT = 1e-4
# Size of made-up gradients, where the script has dropped its own.
MADE_UP = 1e-2


def obstacle(context):
    """Why no update can be tried, or `None`."""
    if not context.optimizers:
        return "it has no optimizer of torch.optim"
    for optimizer in context.optimizers:
        name = type(optimizer).__name__
        closure = inspect.signature(plain_step(optimizer)).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            return f"{name} computes gradients itself, in a closure"
        for parameter in parameters_of(optimizer):
            if hasattr(parameter, "full_tensor"):
                return f"the parameters of {name} are distributed"
            if getattr(parameter, "_post_accumulate_grad_hooks", None):
                return "parameters are updated during the backward pass"
            if parameter.grad is not None and parameter.grad.is_sparse:
                return f"a gradient of {name} is sparse"
    return None


def without_gradient(context):
    """Parameters of the optimizers that got no gradient in the last step, or only zeros."""
    parameters = [one for optimizer in context.optimizers for one in parameters_of(optimizer) if one.requires_grad]
    return sum(1 for one in parameters if one.grad is None or not bool(one.grad.any()))


def compare(context, remedy):
    """One row per weight and state; `remedy()` is on while it is entered."""
    kept = TrainingState(context)
    gradients = [(one, one.grad) for optimizer in context.optimizers for one in parameters_of(optimizer)]
    try:
        give_gradients(gradients)
        update(context)
        reference = TrainingState(context)
        kept.restore()
        with remedy():
            # After the remedy is on, which may lay gradients out otherwise.
            give_gradients(gradients)
            update(context)
        candidate = TrainingState(context)
    finally:
        for one, gradient in gradients:
            one.grad = gradient
        kept.restore()
    return rows_of(context, kept, reference, candidate)


def give_gradients(gradients):
    """Copies, since an optimizer may write to them."""
    import torch

    given = [(one, gradient) for one, gradient in gradients if gradient is not None]
    usable = [(one, gradient) for one, gradient in given if bool(torch.isfinite(gradient).all())]
    for one, gradient in gradients:
        one.grad = None
    for which, (one, gradient) in enumerate(usable or [pair for pair in gradients if pair[0].requires_grad]):
        values = torch.empty_like(one)
        if usable:
            values.copy_(gradient)
        else:
            generator = torch.Generator(one.device)
            generator.manual_seed(1 + which)
            values.normal_(std=MADE_UP, generator=generator)
        one.grad = values


def update(context):
    for optimizer in context.optimizers:
        plain_step(optimizer)(optimizer)


def plain_step(optimizer):
    """The step without hooks, which count it and time it, and without a scheduler's count."""
    step = type(optimizer).step
    while getattr(step, "hooked", False) and hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return step


def parameters_of(optimizer):
    return [one for group in optimizer.param_groups for one in group["params"]]


class TrainingState:
    """Weights, optimizers' state and groups at one moment."""

    def __init__(self, context):
        import torch

        self.optimizers = context.optimizers
        self.weights = [(one, one.detach().clone()) for one in context.parameters()]
        self.states = []
        self.groups = []
        for optimizer in context.optimizers:
            self.states.append({key: copied(torch, value) for key, value in optimizer.state.items()})
            self.groups.append([copied(torch, dict(group, params=None)) for group in optimizer.param_groups])

    def restore(self):
        import torch

        with torch.no_grad():
            for one, content in self.weights:
                one.data.copy_(content)
            for optimizer, states, groups in zip(self.optimizers, self.states, self.groups):
                for key in [key for key in optimizer.state if key not in states]:
                    del optimizer.state[key]
                for key, content in states.items():
                    optimizer.state[key] = put_back(torch, optimizer.state.get(key), content)
                for group, content in zip(optimizer.param_groups, groups):
                    for name in [name for name in group if name not in content]:
                        del group[name]
                    for name, value in content.items():
                        if name != "params":
                            group[name] = put_back(torch, group.get(name), value)


def copied(torch, value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(torch, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(torch, item) for item in value)
    return value


def put_back(torch, now, content):
    """The content, in the object that is there now where that is possible."""
    if isinstance(content, torch.Tensor):
        if not isinstance(now, torch.Tensor) or now.shape != content.shape or now.device != content.device:
            return content.clone()
        now.data.copy_(content)
        return now
    if isinstance(content, dict):
        if not isinstance(now, dict):
            return copied(torch, content)
        for name in [name for name in now if name not in content]:
            del now[name]
        for name, value in content.items():
            now[name] = put_back(torch, now.get(name), value)
        return now
    return content


def rows_of(context, before, reference, candidate):
    import torch

    names = {}
    for module in context.modules:
        names.update({id(one): f"{type(module).__name__}.{name}" for name, one in module.named_parameters()})
    rows = []
    for (one, start), (_, first), (_, second) in zip(before.weights, reference.weights, candidate.weights):
        # Differences of updates below the rounding of the weight itself are none.
        rounding = 2 * torch.finfo(start.dtype).eps * float(start.norm()) if start.is_floating_point() else 0.0
        name = names.get(id(one), "a parameter")
        rows.append(row(name, "weight", first.double() - start.double(), second.double() - start.double(), rounding))
    for optimizer, first, second in zip(context.optimizers, reference.states, candidate.states):
        if set(first) != set(second):
            rows.append(wrong(type(optimizer).__name__, "state"))
            continue
        for key in first:
            name = names.get(id(key), "a parameter")
            rows += state_rows(torch, name, first[key], second[key])
    return rows


def state_rows(torch, name, first, second):
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor) and first.shape == second.shape:
        second = second.to(first.device)
        if first.numel() == 1 or not first.is_floating_point():
            return [] if torch.allclose(first.double(), second.double(), rtol=1e-6) else [wrong(name, "state")]
        # A state of few bits is rounded at another place by another kernel.
        rounding = 2 * torch.finfo(first.dtype).eps * float(first.double().norm())
        return [row(name, "state", first.double(), second.double(), rounding)]
    if isinstance(first, dict) and isinstance(second, dict) and set(first) == set(second):
        return [one for key in first for one in state_rows(torch, f"{name} {key}", first[key], second[key])]
    if type(first) is type(second) and not isinstance(first, (dict, torch.Tensor)):
        return [] if first == second else [wrong(name, "state")]
    return [wrong(name, "state")]


def row(name, what, first, second, rounding):
    length, difference = float(first.norm()), float((second - first).norm())
    allowed = LIMIT * length + rounding
    along = float(((second - first) * first).sum())
    excess = 0.0 if difference == 0.0 else difference / allowed if allowed > 0.0 and math.isfinite(difference) else math.inf
    size = difference / length if length else (math.inf if difference else 0.0)
    projection = along / length**2 if length else 0.0
    limit = allowed / length if length else LIMIT
    return {"name": name, "what": what, "size": size, "projection": projection, "limit": limit, "excess": excess}


def wrong(name, what):
    return {"name": name, "what": what, "size": math.inf, "projection": 0.0, "limit": 0.0, "excess": math.inf}
