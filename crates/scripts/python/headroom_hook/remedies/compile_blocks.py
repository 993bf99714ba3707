"""Compiles repeated blocks of trained modules in place: one compilation serves all blocks of a class.

The code around the blocks is not compiled, so that a module that cannot be compiled as a whole still gains, and
compiling takes a fraction of the time.
"""

NAME = "compile-blocks"
CLASS = "rounding"
RANDOM = "compiled"
SETTLE = 4
EXCLUDES = ("compile", "compile-reduce-overhead")


def applies(facts):
    if not any(module.get("repeated_blocks") for module in facts["modules"]):
        return "it has no repeated blocks"
    return SHARED.part("remedies/compile").applies(facts)


def install(hook):
    hook.at_first_forward(lambda module, arguments, named: compile_blocks(hook, module), after_others=True)


def compile_blocks(hook, module):
    facts = SHARED.part("facts")
    if facts.is_compiled(module):
        return hook.nothing("it is compiled already")
    blocks = [block for found in facts.repeated_blocks(module) for block in found]
    if not blocks:
        return hook.nothing(f"{type(module).__name__} has no repeated blocks")
    return SHARED.part("remedies/compile").compile_modules(hook, blocks, None)


def on(context):
    facts = SHARED.part("facts")
    found = [block for module in context.modules for blocks in facts.repeated_blocks(module) for block in blocks]
    if not found:
        raise SHARED.part("switches").NothingToSwitch("it has no repeated blocks")
    return SHARED.part("remedies/compile").compiled_on(context, NAME, found, context.store.setdefault("code of blocks", {}))


def follow(context):
    context.store[NAME].choose()
