"""Drops gradients instead of filling them with zeros, where a script asks for zeros (`set_to_none=False`).

An optimizer skips a parameter without a gradient, but applies momentum and decay to one whose gradient is zero: a
script with parameters that are unused in some steps trains differently, which its losses show.
"""
import functools

NAME = "zero-grad-none"
CLASS = "same"
ACTS_ON = "gradients"


def applies(facts):
    return None if facts["fills_gradients"] else "it drops its gradients already"


def install(hook):
    hook.nothing("the script never asks for zeros")
    hook.when_loaded("torch.optim.optimizer", lambda module: replace(hook, module.Optimizer))
    hook.when_loaded("torch.nn.modules.module", lambda module: replace(hook, module.Module))


def replace(hook, owner):
    drop(owner, lambda: hook.did("zero_grad call", "dropped gradients"))


def on(context):
    import torch

    undo = [drop(owner) for owner in (torch.optim.Optimizer, torch.nn.Module)]
    filled = [parameter for parameter in context.parameters() if parameter.grad is not None]

    def off():
        for one in undo:
            one()
        for parameter in filled:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    return off


def drop(owner, seen=lambda: None):
    """Returns the function that ends it; the last one puts the class's own `zero_grad` back."""
    zero_grad = owner.zero_grad
    if not hasattr(zero_grad, "users"):
        zero_grad = dropping(zero_grad, seen)
        owner.zero_grad = zero_grad
    zero_grad.users += 1

    def put_back():
        if owner.zero_grad is not zero_grad:
            raise RuntimeError(f"{owner.__name__}.zero_grad was replaced meanwhile")
        zero_grad.users -= 1
        if not zero_grad.users:
            owner.zero_grad = zero_grad.original

    return put_back


def dropping(original, seen):
    @functools.wraps(original)
    def zero_grad(self, set_to_none=True):
        if not set_to_none:
            seen()
        return original(self, set_to_none=True)

    zero_grad.original, zero_grad.users = original, 0
    return zero_grad
