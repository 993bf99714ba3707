"""Runs trained modules under bf16 autocast and returns fp32 results, so that a loss outside them uses fp32."""
import functools
import types

NAME = "bf16-autocast"
CLASS = "precision"
GUARDED = True
UNIT = 4e-3
# Dropout draws other random numbers for another type.
RANDOM = "other"
SETTLE = 2


def applies(facts):
    modules = facts["modules"]
    if not modules:
        return "no trained module is called as a function"
    if facts["autocasts"] or any(module.get("autocast") for module in modules):
        return "it runs under autocast already"
    if not any("float32" in module.get("dtypes", []) for module in modules):
        return "its parameters are not fp32"
    return None


def install(hook):
    hook.at_first_forward(lambda module, arguments, named: wrap(hook, module))


def wrap(hook, module):
    why_not = obstacle(module)
    if why_not:
        return hook.nothing(why_not)
    enter(module)
    hook.did(type(module).__name__, "put under bf16 autocast")
    return None


def on(context):
    undo = [enter(module) for module in context.modules if obstacle(module) is None]
    if not undo:
        why = obstacle(context.modules[0]) if context.modules else "no trained module is called as a function"
        raise SHARED.part("switches").NothingToSwitch(why)
    return lambda: [one() for one in undo]


def obstacle(module):
    import torch

    parameter = next(module.parameters())
    device = parameter.device.type
    # Accelerate stores the module's own forward under this name, and its wrapper may enter autocast.
    if torch.is_autocast_enabled(device) or hasattr(module, "_original_forward"):
        return "it runs under autocast already"
    if parameter.dtype != torch.float32:
        return "its parameters are not fp32"
    if device == "cuda" and not torch.cuda.is_bf16_supported():
        return "the device has no bf16"
    return None


def enter(module):
    """Returns the function that gives the module its own forward back."""
    import torch

    device = next(module.parameters()).device.type
    # Bound to this module: a deep copy of it, as for weight averages, gets its own.
    own = vars(module).get("forward")
    if own is not None:
        module._headroom_forward = own
    plain = getattr(type(module), "forward")

    @functools.wraps(plain)
    def forward(self, *arguments, **named):
        original = vars(self).get("_headroom_forward")
        with torch.autocast(device, dtype=torch.bfloat16):
            result = plain(self, *arguments, **named) if original is None else original(*arguments, **named)
        return in_fp32(torch, result)

    module.forward = ours = types.MethodType(forward, module)

    def leave():
        if vars(module).get("forward") is not ours:
            raise RuntimeError(f"the forward of {type(module).__name__} was replaced while it was under autocast")
        vars(module).pop("_headroom_forward", None)
        if own is None:
            del module.forward
        else:
            module.forward = own

    return leave


def in_fp32(torch, value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    if isinstance(value, dict):
        # Outputs of transformers are dictionaries with attributes: changing them in place keeps their type.
        for key in list(value):
            if value[key] is not None:
                value[key] = in_fp32(torch, value[key])
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(in_fp32(torch, item) for item in value))
    if type(value) in (list, tuple):
        return type(value)(in_fp32(torch, item) for item in value)
    return value
