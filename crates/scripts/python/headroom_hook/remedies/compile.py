"""Compiles trained modules in place (`nn.Module.compile`) at their first call.

Compiled code draws dropout's random numbers in another order, unless HEADROOM_MEASURE_FALLBACK_RANDOM is set. A value
selects another backend: `compile=aot_eager` traces without generating code.
"""

NAME = "compile"
CLASS = "rounding"
MODE = None


def applies(facts):
    modules = facts["modules"]
    if not modules:
        return "no trained module is called as a function"
    if any(module.get("compiled") for module in modules):
        return "it is compiled already"
    if facts.get("own_cuda_graph"):
        return "it captures a CUDA graph of its own"
    return None


def install(hook):
    # Last, so that the changes of other remedies at this moment are compiled too.
    hook.at_first_forward(lambda module, arguments, named: compile_modules(hook, [module], MODE), after_others=True)


def compile_modules(hook, modules, mode):
    import torch

    if SHARED.part("facts").is_compiled(modules[0]):
        return hook.nothing("it is compiled already")
    import torch._dynamo

    # A module that cannot be compiled runs uncompiled, and the note counts it under `compile`.
    torch._dynamo.config.suppress_errors = True
    options = {"mode": mode} if mode else {"backend": hook.value or "inductor"}
    for module in modules:
        module.compile(**options)
        hook.did(type(module).__name__, "compiled" + (f" in mode {mode}" if mode else ""))
    return None
