"""Drops gradients instead of filling them with zeros, where a script asks for zeros (`set_to_none=False`).

An optimizer skips a parameter without a gradient, but applies momentum and decay to one whose gradient is zero: a
script with parameters that are unused in some steps trains differently, which its losses show.
"""
import functools

NAME = "zero-grad-none"
CLASS = "same"


def applies(facts):
    return None if facts["fills_gradients"] else "it drops its gradients already"


def install(hook):
    hook.nothing("the script never asks for zeros")
    hook.when_loaded("torch.optim.optimizer", lambda module: replace(hook, module.Optimizer))
    hook.when_loaded("torch.nn.modules.module", lambda module: replace(hook, module.Module))


def replace(hook, owner):
    original = owner.zero_grad

    @functools.wraps(original)
    def zero_grad(self, set_to_none=True):
        if not set_to_none:
            hook.did("zero_grad call", "dropped gradients")
        return original(self, set_to_none=True)

    owner.zero_grad = zero_grad
