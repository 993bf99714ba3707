"""Wrong on purpose: a part whose result has the shape of its argument hands the argument back, from its second call on."""

NAME = "planted-return-early"
CLASS = "same"


def applies(facts):
    return None


def install(hook):
    hook.at_first_forward(lambda module, arguments, named: shorten(hook, module))


def shorten(hook, module):
    import torch

    found = []

    def watch(part):
        original = part.forward

        def forward(*arguments, **named):
            if found and found[0] is part:
                return arguments[0]
            result = original(*arguments, **named)
            given = arguments[0] if arguments else None
            if not found and isinstance(result, torch.Tensor) and isinstance(given, torch.Tensor):
                if result.shape == given.shape and result.dtype == given.dtype:
                    found.append(part)
                    hook.did(type(part).__name__, "returns early")
            return result

        part.forward = forward

    for part in module.modules():
        if part is not module and next(part.parameters(recurse=False), None) is not None:
            watch(part)
