"""Compiles trained modules in place and launches their kernels as CUDA graphs (`mode="reduce-overhead"`).

A graph writes gradients to the same memory in every step, and PyTorch refuses to read the previous step's. A script that
fills its gradients with zeros would keep them, so they are dropped instead.
"""

NAME = "compile-reduce-overhead"
CLASS = "rounding"
MODE = "reduce-overhead"
RANDOM = "compiled"
# The code is compiled, runs once outside of a graph, and is recorded, forward and backward.
SETTLE = 6
EXCLUDES = ("compile", "compile-blocks")


def applies(facts):
    if facts["machine"]["device"] != "cuda":
        return "CUDA graphs need a CUDA device"
    return SHARED.part("remedies/compile").applies(facts)


def install(hook):
    compile_modules = SHARED.part("remedies/compile").compile_modules
    drop = SHARED.part("remedies/zero_grad_none").replace
    hook.when_loaded("torch.optim.optimizer", lambda module: drop(hook, module.Optimizer))
    hook.when_loaded("torch.nn.modules.module", lambda module: drop(hook, module.Module))
    hook.at_first_forward(lambda module, arguments, named: compile_modules(hook, [module], MODE), after_others=True)


def on(context):
    import torch

    compiling = SHARED.part("remedies/compile")
    code = context.store.setdefault(compiling.CODE, {})
    undo = compiling.compiled_on(context, NAME, list(context.modules), code, MODE)
    drop = SHARED.part("remedies/zero_grad_none").drop
    kept = [drop(owner) for owner in (torch.optim.Optimizer, torch.nn.Module)]

    def off():
        for keep in kept:
            keep()
        # The next graph that runs would write to them.
        for parameter in context.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clone()
        undo()

    return off


def follow(context):
    context.store[NAME].choose()
