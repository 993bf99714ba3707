"""Compiles trained modules in place and launches their kernels as CUDA graphs (`mode="reduce-overhead"`)."""

NAME = "compile-reduce-overhead"
CLASS = "rounding"
MODE = "reduce-overhead"


def applies(facts):
    if facts["machine"]["device"] != "cuda":
        return "CUDA graphs need a CUDA device"
    return SHARED.part("remedies/compile").applies(facts)


def install(hook):
    compile_modules = SHARED.part("remedies/compile").compile_modules
    hook.at_first_forward(lambda module, arguments, named: compile_modules(hook, [module], MODE), after_others=True)
