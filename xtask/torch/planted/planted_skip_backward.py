"""Wrong on purpose: the first layer with parameters of its own runs without a graph, so that it never learns."""

NAME = "planted-skip-backward"
CLASS = "same"


def applies(facts):
    return None


def install(hook):
    hook.at_first_forward(lambda module, arguments, named: cut(hook, module))


def cut(hook, module):
    import torch

    for part in module.modules():
        if part is not module and next(part.parameters(recurse=False), None) is not None:
            original = part.forward

            def forward(*arguments, **named):
                with torch.no_grad():
                    return original(*arguments, **named)

            part.forward = forward
            return hook.did(type(part).__name__, "never learns")
    return None
