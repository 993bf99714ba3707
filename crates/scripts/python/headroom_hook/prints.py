"""Prints of samples and of a data set's fields: short texts that differ where the bytes do.

A part of a sample has shape, type and checksum of all its bytes. A field has a print and a text for people; objects
inside a data set are entered a few levels deep, and so are the globals and closures that it reads.
"""
import ctypes
import itertools
import pickle
import types
import zlib
from collections.abc import Mapping

# Limits of the prints of fields: how many, how deep, how many items of a list, and how many bytes at both ends.
MOST_FIELDS = 256
MOST_DEPTH = 4
MOST_ITEMS = 256
MOST_BYTES = 1 << 18
MOST_TEXT = 40
PLAIN = (bool, int, float, complex, str, bytes, type(None))
OPAQUE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


# Samples.


def print_of(sample):
    """One text per part: shape, type and checksum of all bytes."""
    return [print_of_leaf(leaf) for leaf in leaves(sample)]


def leaves(sample, depth=0):
    if depth < 8 and isinstance(sample, Mapping):
        for key in sample:
            yield key
            yield from leaves(sample[key], depth + 1)
    elif depth < 8 and isinstance(sample, (list, tuple)):
        for item in sample:
            yield from leaves(item, depth + 1)
    else:
        yield sample


def print_of_leaf(leaf, most=None):
    """`most`: bytes that are read at the beginning and at the end; all without."""
    if isinstance(leaf, OPAQUE):
        return getattr(leaf, "__qualname__", type(leaf).__name__)
    if hasattr(leaf, "data_ptr") and hasattr(leaf, "shape"):
        kind = f"{'x'.join(map(str, leaf.shape))}:{str(leaf.dtype).replace('torch.', '')}"
        try:
            return f"{kind}:{checksum(leaf.detach(), most):08x}"
        except Exception:  # noqa: BLE001
            # Sparse, or of a kind that cannot be copied.
            return kind
    if hasattr(leaf, "tobytes"):
        size = getattr(leaf, "shape", None) or getattr(leaf, "size", None)
        parts = ends(leaf.reshape(-1), leaf.itemsize, most) if hasattr(leaf, "reshape") else [leaf]
        total = 0
        for part in parts:
            total = zlib.crc32(part.tobytes(), total)
        return f"{type(leaf).__name__} {size}:{getattr(leaf, 'dtype', '')}:{total:08x}"
    if isinstance(leaf, PLAIN):
        return f"{type(leaf).__name__} {shortened(repr(leaf))}:{zlib.crc32(repr(leaf).encode()):08x}"
    try:
        return f"{type(leaf).__name__}:{zlib.crc32(pickle.dumps(leaf)):08x}"
    except Exception:  # noqa: BLE001
        return type(leaf).__name__


def checksum(tensor, most):
    total = 0
    for part in ends(tensor.cpu().contiguous().reshape(-1), tensor.element_size(), most):
        if part.numel():
            total = zlib.crc32(ctypes.string_at(part.data_ptr(), part.numel() * part.element_size()), total)
    return total


def ends(flat, width, most):
    """The whole, or its beginning and its end if it is long."""
    count = len(flat) if most is None else most // max(1, width)
    return [flat] if len(flat) <= 2 * count else [flat[:count], flat[-count:]]


def shortened(text):
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


# Fields of the data set and of collation.


def fields_of(dataset, collate):
    """Shallow fields by name: {name: (print, text)}. Objects inside are entered, a few levels deep."""
    found = {}
    try:
        fill(found, dataset, collate)
    except Exception:  # noqa: BLE001
        # They only name the cause: an object that cannot be looked at names none.
        pass
    return found


def fill(found, dataset, collate):
    enter(dataset, "", 0, found, set())
    if hasattr(collate, "__dict__") and not isinstance(collate, OPAQUE):
        enter(collate, "collate_fn.", 0, found, set())
    for function in [getattr(type(dataset), "__getitem__", None), getattr(type(dataset), "__iter__", None), collate]:
        outside(function, found)


def enter(thing, name, depth, found, seen):
    if depth > MOST_DEPTH or id(thing) in seen:
        return
    seen.add(id(thing))
    for key, value in list(getattr(thing, "__dict__", {}).items()):
        keep(value, name + str(key), depth, found, seen)


def keep(value, name, depth, found, seen):
    if len(found) >= MOST_FIELDS:
        return
    if isinstance(value, OPAQUE):
        found[name] = print_of_leaf(value), getattr(value, "__name__", "a function")
    elif isinstance(value, PLAIN) or hasattr(value, "data_ptr") or hasattr(value, "tobytes"):
        found[name] = print_of_leaf(value, MOST_BYTES), text_of(value)
    elif isinstance(value, (list, tuple, set, frozenset, range, Mapping)):
        few = some_of(value)
        prints = [part for item in few for part in shallow(item)]
        found[name] = f"{len(value)}:{zlib.crc32(repr(prints).encode()):08x}", text_of(value)
        for at, item in enumerate(few[:16] if not isinstance(value, Mapping) else []):
            if hasattr(item, "__dict__") and not isinstance(item, OPAQUE):
                enter(item, f"{name}[{at}].", depth + 1, found, seen)
    elif hasattr(value, "__dict__"):
        found[name] = type(value).__name__, f"a {type(value).__name__}"
        enter(value, name + ".", depth + 1, found, seen)
    else:
        found[name] = type(value).__name__, f"a {type(value).__name__}"


def some_of(value):
    """Items that stand for all: evenly spread, or the first of what has no positions."""
    if isinstance(value, Mapping):
        return list(itertools.islice(value.items(), MOST_ITEMS))
    if isinstance(value, (set, frozenset)):
        return list(itertools.islice(value, MOST_ITEMS))
    every = -(-len(value) // MOST_ITEMS) or 1
    return [*value[::every], *value[-1:]]


def shallow(item):
    for leaf in leaves(item):
        is_known = isinstance(leaf, PLAIN) or hasattr(leaf, "data_ptr") or hasattr(leaf, "tobytes")
        yield print_of_leaf(leaf, MOST_BYTES) if is_known else type(leaf).__name__


def text_of(value):
    if hasattr(value, "shape") and getattr(value, "shape", ()) != ():
        return f"a {type(value).__name__} of {'x'.join(map(str, value.shape))}"
    if isinstance(value, PLAIN) or hasattr(value, "shape") or hasattr(value, "__len__") and len(value) <= 6:
        return shortened(repr(value))
    return f"a {type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else f"a {type(value).__name__}"


def outside(function, found):
    """Names from outside that the function reads: globals and variables of functions around it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    known = getattr(function, "__globals__", {})
    values = {name: known[name] for name in code.co_names if name in known}
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or ()):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
    for name, value in values.items():
        if not isinstance(value, OPAQUE):
            keep(value, name, 1, found, set())


def differing(worker, own):
    """Names with the texts of both, where the prints differ."""
    names = [*worker, *(name for name in own if name not in worker)]
    pairs = [(name, worker.get(name, (None, "not there")), own.get(name, (None, "not there"))) for name in names]
    return [(name, (one[1], other[1])) for name, one, other in pairs if one[0] != other[0]]
