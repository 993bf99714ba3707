"""Switches attention to `scaled_dot_product_attention`, which does not write the scores to memory.

Models of transformers with eager attention are switched. `nn.MultiheadAttention` uses it too once its weights are not
requested; whether a module uses them is read from its source: `out, _ = self.attention(...)` with `_` never read, or
`self.attention(...)[0]`. The same holds for attentions in a list: `self.attentions[i](...)`.
"""
import ast
import functools
import inspect
import textwrap

NAME = "sdpa"
CLASS = "rounding"
GUARDED = True
# Its dropout is drawn inside the kernel.
RANDOM = "other"
SETTLE = 2
FLAG = "_headroom_weights_unused"
# Only its author can change attention that a script writes out itself.
NONE_TO_SWITCH = "it has no attention of transformers or of nn.MultiheadAttention that could be switched"


def applies(facts):
    modules = facts["modules"]
    if any("eager" in module.get("attention", []) for module in modules):
        return None
    if any(module.get("weights_unused") for module in modules):
        return None
    if any(module.get("attention") for module in modules):
        return "its attention is fused already"
    if any(module.get("multihead_attentions") for module in modules):
        return "the weights of its attention are read"
    return NONE_TO_SWITCH


def install(hook):
    hook.nothing(NONE_TO_SWITCH)
    hook.at_first_forward(lambda module, arguments, named: change(hook, module))


def change(hook, module):
    change_transformers(hook, module)
    change_multihead(hook, module)


def on(context):
    """Configurations are compared by content, so they are told apart by identity."""
    configs = {id(config): config for module in context.modules for config in configs_of(module)}
    before = [(config, config._attn_implementation) for config in configs.values()]
    attentions = [one for module in context.modules for one in with_unused_weights(module)[0]]
    trial = Trial()
    for module in context.modules:
        change_transformers(trial, module)
    if not trial.changes and not attentions:
        raise SHARED.part("switches").NothingToSwitch(trial.reason or NONE_TO_SWITCH)
    from torch import nn

    forward = nn.MultiheadAttention.forward
    for attention in attentions:
        setattr(attention, FLAG, True)
        replace_forward(nn.MultiheadAttention)

    def off():
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        for attention in attentions:
            delattr(attention, FLAG)
        nn.MultiheadAttention.forward = forward

    return off


class Trial:
    """Takes a hook's place where nothing is reported."""

    def __init__(self):
        self.changes = 0
        self.reason = None

    def did(self, thing, what):
        self.changes += 1

    def nothing(self, reason):
        self.reason = reason


def configs_of(module):
    """Configurations of transformers in the module, and those that they hold."""
    waiting = [part.config for part in module.modules() if hasattr(getattr(part, "config", None), "_attn_implementation")]
    found = {}
    while waiting:
        config = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            held = [getattr(config, name, None) for name in getattr(config, "sub_configs", None) or ()]
            waiting += [one for one in held if hasattr(one, "_attn_implementation_internal")]
    return found.values()


def change_transformers(hook, module):
    for part in module.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) != "eager" or not hasattr(part, "set_attn_implementation"):
            continue
        if getattr(config, "output_attentions", False):
            hook.nothing("the script asks for attention weights")
        elif not getattr(part, "_supports_sdpa", False):
            hook.nothing(f"{type(part).__name__} has no SDPA version")
        else:
            part.set_attn_implementation("sdpa")
            if config._attn_implementation == "sdpa":
                hook.did(type(part).__name__, "switched to SDPA")


def change_multihead(hook, module):
    from torch import nn

    unused, reason = with_unused_weights(module)
    for attention in unused:
        setattr(attention, FLAG, True)
        replace_forward(nn.MultiheadAttention)
        hook.did("MultiheadAttention", "without weights, which nobody reads")
    if reason:
        hook.nothing(reason)


def with_unused_weights(module):
    """Attentions whose weights are computed but unused, and why others are left alone."""
    found, reason = [], None
    for owner, name, attention in held(module):
        if owner.__module__.startswith("torch.nn."):
            reason = "PyTorch's own layers do not ask for attention weights"
        elif unused_calls(owner, name):
            found.append(attention)
        else:
            reason = f"{owner.__name__} reads its attention weights, or asks for none"
    return found, reason


def held(module):
    """Each attention with the class of the module that holds it, directly or in a list, and its name there."""
    from torch import nn

    for parent in module.modules():
        if isinstance(parent, (nn.ModuleList, nn.ModuleDict)):
            continue
        for name, child in parent.named_children():
            of_list = child.children() if isinstance(child, (nn.ModuleList, nn.ModuleDict)) else ()
            for attention in (child, *of_list):
                if isinstance(attention, nn.MultiheadAttention):
                    yield type(parent), name, attention


def owners_of_unused(module):
    """Classes that hold such attentions, and the names under which they do."""
    unused = {id(attention) for attention in with_unused_weights(module)[0]}
    return list(dict.fromkeys((owner, name) for owner, name, attention in held(module) if id(attention) in unused))


def replace_forward(owner):
    original = owner.forward
    if hasattr(original, FLAG):
        return

    @functools.wraps(original)
    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, *others, **named):
        need_weights = need_weights and not getattr(self, FLAG, False)
        return original(self, query, key, value, key_padding_mask, need_weights, *others, **named)

    setattr(forward, FLAG, True)
    owner.forward = forward


def unused_calls(owner, name):
    """Places (file, line, last line, end byte) of calls of `self.name` in the class, if each requests weights and drops
    them. `None` without its source, or with another use."""
    try:
        file = inspect.getsourcefile(owner)
        lines, first = inspect.getsourcelines(owner)
        text = "".join(lines)
        plain = textwrap.dedent(text)
        tree = ast.parse(plain)
    except (OSError, TypeError, SyntaxError):
        return None
    margin = len(text) - len(text.lstrip()) - (len(plain) - len(plain.lstrip()))
    calls = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(function):
            if is_own(node, name):
                call = call_of(node, parents)
                if call is None or not drops_second(function, call, parents):
                    return None
                calls.append((file, first + call.lineno - 1, first + call.end_lineno - 1, call.end_col_offset + margin))
    return calls


def is_own(node, name):
    """Whether the node reads an attribute `name`, of any object."""
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)


def call_of(attribute, parents):
    """The call of the attribute itself or, in a list, of one of its items; `None` for any other use."""
    above = parents.get(attribute)
    if isinstance(above, ast.Subscript) and above.value is attribute:
        attribute, above = above, parents.get(above)
    return above if isinstance(above, ast.Call) and above.func is attribute else None


def drops_second(function, call, parents):
    if any(keyword.arg in ("need_weights", None) for keyword in call.keywords):
        return False
    above = parents.get(call)
    if isinstance(above, ast.Subscript):
        return isinstance(above.slice, ast.Constant) and above.slice.value == 0
    if not isinstance(above, ast.Assign) or len(above.targets) != 1:
        return False
    target = above.targets[0]
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or not isinstance(target.elts[1], ast.Name):
        return False
    second = target.elts[1].id
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == second]
    return all(isinstance(node.ctx, ast.Store) for node in names)
