"""Places in the script's own files: where loaders, optimizers and wrappers are constructed, and trained modules' names.

The patch is written at these places. A file is the script's own if it is under the folder that the script was started
in, or next to the main script, and is not installed. A place is the innermost frame of such a file at the construction;
it is direct if that frame made the object itself, and not a library that it called.

Frames are inspected when something is constructed or first called, until the second step has ended; timed steps are not
affected.
"""
import functools
import itertools
import os
import sys
import weakref

START = os.getcwd()
HERE = os.path.dirname(os.path.abspath(__file__))
INSTALLED = ("site-packages", "dist-packages")
# Enough for any script; one that keeps creating loaders is not followed.
MOST = 64
MOST_OBJECTS = 4000
# Steps after which zeros and copies are no longer recorded.
LAST_MARK = 2


class Places:
    def __init__(self, moments, batches):
        self.moments, self.batches = moments, batches
        self.loaders, self.optimizers, self.wrapped, self.arguments = [], [], [], []
        self.roots = []
        self.zeros, self.copied = [], []
        self.is_open = True

    def watch(self):
        self.moments.places = self
        self.moments.at_mark.append(self.close)
        SHARED.when_loaded("torch.utils.data.dataloader", lambda module: self.see(module.DataLoader, self.loaders))
        SHARED.when_loaded(
            "torch.nn.parallel.distributed", lambda module: self.see(module.DistributedDataParallel, self.wrapped)
        )
        SHARED.when_loaded("transformers.training_args", self.watch_arguments)

    def close(self, marks):
        self.is_open = self.is_open and marks < LAST_MARK

    def see(self, owner, found, name="__init__"):
        original = getattr(owner, name)

        @functools.wraps(original)
        def made(this, *arguments, **named):
            original(this, *arguments, **named)
            if len(found) < MOST and self.is_open:
                SHARED.guarded(self.made, found, this, sys._getframe(1), listener=self.moments)

        setattr(owner, name, made)

    def watch_arguments(self, module):
        """Watches `__post_init__`, which a dataclass calls at the end of its constructor."""
        self.see(module.TrainingArguments, self.arguments, "__post_init__")

    def made(self, found, thing, frame):
        frames = own_frames(frame, thing)
        entry = {"thing": weakref.ref(thing), "class": type(thing).__name__, "place": frames and frames[0]["place"]}
        entry["dataset"] = id(getattr(thing, "dataset", None))
        found.append(entry)

    def made_optimizer(self, optimizer):
        if len(self.optimizers) < MOST and self.is_open:
            frames = own_frames(sys._getframe(1), optimizer, with_names=True)
            entry = {"thing": weakref.ref(optimizer), "class": type(optimizer).__name__, "frames": frames}
            entry["place"] = frames[0]["place"] if frames else None
            self.optimizers.append(entry)

    def filled(self, frame):
        """Records a `zero_grad` call that asks for zeros."""
        if self.is_open and len(self.zeros) < MOST:
            remember(self.zeros, frame)

    def copy(self, frame):
        """Records a copy that a remedy made non-blocking."""
        if len(self.copied) < MOST:
            remember(self.copied, frame)

    # Trained modules.

    def found_root(self, module):
        """Called before remedies change the module."""
        entry = {"class": type(module).__name__, "place": None, "expression": None, "wraps": False, "frameworks": []}
        entry["blocks"], entry["eager"], entry["attentions"] = [], [], []
        self.roots.append(entry)
        parameters = {id(parameter) for parameter in module.parameters()}
        holder = next((one for one in self.optimizers if holds(one["thing"](), parameters)), None)
        frames = holder["frames"] if holder else []
        frame, expression = known_in(frames, module)
        inner = module
        if frame is None:
            # A wrapper that was added later: the module inside it is known.
            for part in itertools.islice(module.modules(), 1, 4):
                if {id(parameter) for parameter in part.parameters()} == parameters:
                    frame, expression = known_in(frames, part)
                    inner = part
                    if frame is not None:
                        entry["wraps"] = True
                        break
        if frame is None:
            frame = frames[0] if frames else None
        if frame is not None:
            entry.update(place=frame["place"], expression=expression, frameworks=frame["frameworks"])
        if expression is not None:
            entry["blocks"] = attempt(lambda: blocks_of(inner), [])
            entry["eager"] = attempt(lambda: eager_parts(inner), [])
        entry["attentions"] = attempt(lambda: attention_calls(module), [])

    def content(self):
        of_optimizers = {id(one["thing"]()): one for one in self.optimizers if one["thing"]() is not None}
        live = [(type(one).__name__, of_optimizers.get(id(one), {})) for one in self.moments.live_optimizers()]
        return {
            "main": attempt(main_script, None),
            "loaders": [self.of_loader(one["loader"]) for one in self.batches.loaders],
            "optimizers": [{"class": kind, "place": one.get("place")} for kind, one in live],
            "distributed": [plain(one) for one in self.wrapped],
            "arguments": [plain(one) for one in self.arguments],
            "modules": self.roots,
            "zeros": self.zeros,
            "copies": self.copied,
        }

    def of_loader(self, loader):
        own = next((one for one in self.loaders if one["thing"]() is loader), None)
        if own is None or not (own["place"] and own["place"]["direct"]):
            # Frameworks create their own loader from the script's, over the same data.
            dataset = id(getattr(loader, "dataset", None))
            of_script = [one for one in self.loaders if one["dataset"] == dataset and one["place"]]
            own = next((one for one in of_script if one["place"]["direct"]), own)
        return plain(own) if own else {"class": type(loader).__name__, "place": None}


def plain(entry):
    return {"class": entry["class"], "place": entry["place"]}


def remember(found, frame):
    frames = own_frames(frame, None)
    if frames and frames[0]["place"] not in found:
        found.append(frames[0]["place"])


def attempt(function, otherwise):
    try:
        return function()
    except Exception:  # noqa: BLE001
        return otherwise


def main_script():
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return shown(path) if path and is_own(path) else None


# Frames.


@functools.lru_cache(None)
def is_own(path):
    if not path or path.startswith("<"):
        return False
    full = os.path.realpath(os.path.join(START, path))
    parts = full.split(os.sep)
    if any(name in parts for name in INSTALLED) or full.startswith(HERE + os.sep) or not os.path.isfile(full):
        return False
    if os.path.dirname(full) == os.path.dirname(os.path.realpath(sys.executable)):
        return False
    beside = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [START] + ([os.path.dirname(os.path.join(START, beside))] if beside and is_script(beside) else [])
    return any(full.startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep) for folder in folders)


def is_script(path):
    """Excludes console scripts, which are installed next to the interpreter, where nothing is the user's."""
    folder = os.path.realpath(os.path.dirname(os.path.join(START, path)))
    is_installed = any(name in folder.split(os.sep) for name in INSTALLED)
    return not is_installed and folder != os.path.realpath(os.path.dirname(sys.executable))


def shown(path):
    """The path relative to the folder that the script was started in, if it is under it."""
    full, start = os.path.realpath(os.path.join(START, path)), os.path.realpath(START)
    return os.path.relpath(full, start) if full.startswith(start.rstrip(os.sep) + os.sep) else full


def own_frames(frame, thing, with_names=False):
    """Frames of the script's own files, innermost first; the first records whether it made the object itself."""
    found, is_direct = [], True
    while frame is not None and len(found) < 8:
        code = frame.f_code
        if is_own(code.co_filename):
            entry = {"place": dict(position(frame), direct=is_direct and not found)}
            if with_names:
                entry.update(names_in(frame))
            found.append(entry)
            if not with_names:
                break
        elif not is_part_of_making(frame, code, thing):
            is_direct = False
        frame = frame.f_back
    return found


def is_part_of_making(frame, code, thing):
    """Our own wrappers, constructors of the object's classes, and frameworks' wrappers around them."""
    if os.path.abspath(code.co_filename).startswith(os.path.dirname(HERE) + os.sep):
        return True
    if thing is None or not code.co_argcount:
        # Functions of ours around `zero_grad` and copies; comprehensions.
        return False
    return locals_of(frame).get(code.co_varnames[0]) is thing


def position(frame):
    code = frame.f_code
    place = {"file": shown(code.co_filename), "line": frame.f_lineno, "end_line": None, "end_column": None}
    place["function"] = code.co_name
    if hasattr(code, "co_positions"):
        line, end_line, _, end_column = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
        if line is not None:
            place.update(line=line, end_line=end_line, end_column=end_column)
    return place


def locals_of(frame):
    """Returns a copy: before Python 3.13 the frame keeps the requested dictionary, and with it every value in it."""
    found = frame.f_locals
    copied = dict(found)
    is_function = frame.f_code.co_flags & 1
    if is_function and sys.version_info < (3, 13):
        found.clear()
    return copied


# Names.


def names_in(frame):
    """Expressions for modules that are valid in this frame, shortest first, and the frameworks visible there."""
    from torch import nn

    modules, frameworks = [], []
    seen, level = set(), []
    # A function's own names first. A comprehension's names do not exist before the statement around it.
    is_expression = frame.f_code.co_name.startswith("<") and frame.f_code.co_name != "<module>"
    own = {} if is_expression else locals_of(frame)
    scope = {**{name: value for name, value in frame.f_globals.items() if not name.startswith("__")}, **own}
    names = [*own, *(name for name in scope if name not in own)]
    level = [(name, scope[name]) for name in names if name.isidentifier()]
    for depth in range(3):
        following = []
        for expression, value in level:
            if len(seen) > MOST_OBJECTS or isinstance(value, type):
                continue
            if isinstance(value, nn.Module):
                modules.append((expression, weakref.ref(value)))
                kind = framework_of(value)
                if kind and depth < 2:
                    frameworks.append({"kind": kind, "expression": expression})
                continue
            if id(value) in seen or isinstance(value, (str, bytes, int, float, type(os), type(names_in), type(len))):
                continue
            seen.add(id(value))
            kind = framework_of(value)
            if kind and depth < 2:
                frameworks.append({"kind": kind, "expression": expression})
            following += [(expression + suffix, inner) for suffix, inner in inside(value)]
        level = following
    return {"modules": modules, "frameworks": frameworks[:8]}


def inside(value):
    if isinstance(value, dict):
        return [(f"[{key!r}]", inner) for key, inner in itertools.islice(value.items(), 16) if isinstance(key, str)]
    if isinstance(value, (list, tuple)):
        return [(f"[{index}]", inner) for index, inner in enumerate(value[:16])]
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return []
    plain_names = [(name, inner) for name, inner in attributes.items() if isinstance(name, str) and name.isidentifier()]
    return [(f".{name}", inner) for name, inner in plain_names[:200] if not name.startswith("_")]


def framework_of(value):
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        if package == "transformers" and kind.__name__ == "Trainer":
            return "transformers"
        if package in ("lightning", "pytorch_lightning") and kind.__name__ in ("Trainer", "LightningModule"):
            return "lightning"
        if package == "accelerate" and kind.__name__ == "Accelerator":
            return "accelerate"
    return None


def holds(optimizer, parameters):
    groups = getattr(optimizer, "param_groups", [])
    return any(id(parameter) in parameters for group in groups for parameter in group["params"])


def known_in(frames, module):
    """The innermost frame with a name for the module; a method of the module itself only as a last resort."""
    bare = None
    for frame in frames:
        expression = expression_of(frame, module)
        if expression == "self":
            bare = bare or (frame, expression)
        elif expression is not None:
            return frame, expression
    return bare or (None, None)


def expression_of(frame, module):
    for expression, reference in frame["modules"]:
        if reference() is module:
            return expression
    # As a part of a known module, such as a Lightning module's net.
    for expression, reference in frame["modules"]:
        whole = reference()
        for name, part in whole.named_modules() if whole is not None else ():
            if part is module:
                return expression + path_of(name)
    return None


def path_of(name):
    """`layers.0.net` as `.layers[0].net`."""
    return "".join(f"[{word}]" if word.isdigit() else f".{word}" for word in name.split(".") if word)


def blocks_of(module):
    """Suffixes to the module's expression that select its repeated blocks."""
    lists = SHARED.part("facts").repeated_blocks(module)
    names = {id(part): path_of(name) for name, part in module.named_modules()}
    found = []
    for blocks in lists:
        inside_of = next(
            part for part in module.modules() if any(child is blocks[0] for child in part.children())
        )
        children = list(inside_of.children())
        indices = [next(index for index, child in enumerate(children) if child is block) for block in blocks]
        path = names[id(inside_of)]
        first, last = indices[0], indices[-1]
        if len(indices) == len(children):
            found.append([path])
        elif indices == list(range(first, last + 1)):
            found.append([f"{path}[{first}:{last + 1}]"])
        else:
            found.append([f"{path}[{index}]" for index in indices])
    return found


def eager_parts(module):
    """Outermost models of transformers with eager attention that can be switched."""
    found, done = [], set()
    for name, part in module.named_modules():
        if id(part) in done or not hasattr(part, "set_attn_implementation"):
            continue
        if SHARED.part("facts").attention_of(part) == "eager" and getattr(part, "_supports_sdpa", False):
            found.append(path_of(name))
            done.update(id(inner) for inner in part.modules())
    return found


def attention_calls(module):
    """Calls of nn.MultiheadAttention whose weights are unused."""
    found = []
    for owner, name in SHARED.part("remedies/sdpa").owners_of_unused(module):
        for file, line, end_line, end_column in SHARED.part("remedies/sdpa").unused_calls(owner, name) or ():
            place = {"file": shown(file), "line": line, "end_line": end_line, "end_column": end_column}
            place.update(function="forward", direct=True)
            if is_own(file) and place not in found:
                found.append(place)
    return found
