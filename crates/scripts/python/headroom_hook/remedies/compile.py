"""Compiles trained modules in place (`nn.Module.compile`) at their first call.

Compiled code draws dropout's random numbers in another order, unless HEADROOM_MEASURE_FALLBACK_RANDOM is set. A value
selects another backend: `compile=aot_eager` traces without generating code.
"""
import functools
import types

NAME = "compile"
CLASS = "rounding"
MODE = None
# Compiled code draws its own random numbers, unless it falls back to PyTorch's.
RANDOM = "compiled"
# Forward and backward are compiled in the first step, other sizes in the next ones.
SETTLE = 4
EXCLUDES = ("compile-blocks", "compile-reduce-overhead")
# Where code of whole modules is kept: graphs replay the same code.
CODE = "code of whole modules"
# Combinations of switches multiply the versions of code that several of them share.
MOST_VERSIONS = 64


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


def on(context):
    return compiled_on(context, NAME, list(context.modules), context.store.setdefault(CODE, {}))


def follow(context):
    """Another switch has changed what guards see."""
    context.store[NAME].choose()


def compiled_on(context, name, modules, code, mode=None):
    """`code` keeps what was compiled, by combination."""
    import torch._dynamo

    if any(SHARED.part("facts").is_compiled(module) for module in modules):
        raise SHARED.part("switches").NothingToSwitch("it is compiled already")
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    before = {"suppress_errors": config.suppress_errors, limit: getattr(config, limit)}
    config.suppress_errors = True
    setattr(config, limit, max(MOST_VERSIONS, before[limit]))
    versions = context.store.setdefault(name, Versions(context, code, mode))
    versions.modules = modules
    versions.choose()

    def off():
        for module in modules:
            # The class has one, which is `None`.
            vars(module).pop("_compiled_call_impl", None)
        for setting, value in before.items():
            setattr(config, setting, value)

    return off


class Versions:
    """One compiled function per combination of the switches that guards see, each with code of its own: versions of one
    code object share a limit, beyond which all of them run uncompiled.

    A shadow step replays without CUDA graphs: they launch the same code, and keep its results in memory that the next
    replay writes to."""

    def __init__(self, context, code, mode):
        self.context = context
        self.mode = mode
        self.modules = []
        self.code = code

    def choose(self):
        mode = None if self.context.is_shadowing else self.mode
        key = (mode, *self.context.combination())
        if key not in self.code:
            self.code[key] = self.made(len(self.code), mode)
        run = self.code[key]
        if self.context.draws is not None:
            run = SHARED.part("shadow_draws").outside_of_modes(run)
        for module in self.modules:
            module._compiled_call_impl = functools.partial(run, module)

    def made(self, number, mode):
        import torch

        def run(module, *arguments, **named):
            return module._call_impl(*arguments, **named)

        code = run.__code__.replace(co_name=f"run_{number}")
        own = types.FunctionType(code, run.__globals__, code.co_name)
        return torch.compile(own, backend=self.counting_backend(mode))

    def counting_backend(self, mode):
        """The backend, with a count of the graphs that run: a fallback to eager execution leaves no other trace."""
        import torch

        context = self.context
        if context.backend == "inductor":
            inner = torch._TorchCompileInductorWrapper(mode, None, None)
        else:
            from torch._dynamo.backends.registry import lookup_backend

            inner = lookup_backend(context.backend)

        def backend(graph, inputs):
            taped = None
            if context.draws is not None:
                taped, graph, inputs = SHARED.part("shadow_draws").taped_graph(graph, inputs)
            compiled = inner(graph, inputs)

            def run(*arguments):
                context.graphs_run += 1
                if taped is not None:
                    arguments = (*arguments, *context.draws.read_for(taped))
                return compiled(*arguments)

            return run

        return backend
