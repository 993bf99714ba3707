"""Writes crates/lint/src/tables/api.tsv: what calls of PyTorch and its neighbours return, change, and wait for.

    python bench/api_table.py measure measured.json          # where a GPU is: waits and places of PyTorch's own samples
    python bench/api_table.py write TABLE [measured.json]    # where all five libraries are

`waits` is "yes", "some" (of the samples), "no", or "size": the host waits for the size of the result.

Types and changes in place come from stubs, signatures and native schemas; masks (results that are always of type bool)
from PyTorch's own samples on the CPU; `waits` and `place` from the same samples on a GPU. A row by hand has its reason.
"""

import ast
import inspect
import itertools
import json
import multiprocessing
import re
import sys
import types
import unittest
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

COLUMNS = ["name", "returns", "in_place", "draws", "place", "waits", "source", "reason"]
UNKNOWN = "not-measured"
MOST_SAMPLES = 4
# Processes that measure side by side.
PARTS = 14

# name: (returns, place, waits, reason)
BY_HAND = {
    "accelerate.Accelerator.backward": ("none", "none", "no", "queues the backward pass"),
    "accelerate.Accelerator.gather": ("tensor", "arguments", "no", "a collective that the device queues"),
    "accelerate.Accelerator.gather_for_metrics": ("tensor", "arguments", "no", "a collective that the device queues"),
    "accelerate.Accelerator.prepare": ("same", "arguments", "no", "returns its arguments, wrapped"),
    "accelerate.Accelerator.reduce": ("tensor", "arguments", "no", "a collective that the device queues"),
    "accelerate.Accelerator.unwrap_model": ("module", "none", "no", "returns the module inside"),
    "lightning.Fabric.all_reduce": ("tensor", "arguments", "no", "a collective that the device queues"),
    "lightning.Fabric.backward": ("none", "none", "no", "queues the backward pass"),
    "lightning.Fabric.setup": ("same", "arguments", "no", "returns its arguments, wrapped"),
    "lightning.Fabric.setup_dataloaders": ("same", "arguments", "no", "returns its arguments, wrapped"),
    "torch.Tensor.backward": ("none", "none", "no", "queues the backward pass"),
    "torch.Tensor.corrcoef": ("tensor", "arguments", "some", "weights are checked on the host"),
    "torch.Tensor.cov": ("tensor", "arguments", "some", "weights are checked on the host"),
    "torch.Tensor.index_fill": ("tensor", "arguments", "some", "a value that is a tensor is read"),
    "torch.Tensor.index_fill_": ("tensor", "arguments", "some", "a value that is a tensor is read"),
    "torch.Tensor.masked_fill": ("tensor", "arguments", "some", "a value that is a tensor is read"),
    "torch.Tensor.masked_fill_": ("tensor", "arguments", "some", "a value that is a tensor is read"),
    "torch.Tensor.repeat_interleave": ("tensor", "arguments", "some", "without output_size, repeats that are a tensor are read"),
    "torch.Tensor.cpu": ("tensor", "host", "yes", "the host waits for the copy"),
    "torch.Tensor.cuda": ("tensor", "device", "no", "from pinned memory only with non_blocking; else the copy blocks"),
    "torch.Tensor.item": ("number", "host", "yes", "the host needs the value"),
    "torch.Tensor.numpy": ("array", "host", "no", "an error for a tensor on the device"),
    "torch.Tensor.pin_memory": ("tensor", "pinned", "no", "a copy between two places of the host's memory"),
    "torch.Tensor.unique": ("tensor|tensors", "arguments", "size", "the size of its result depends on the data"),
    "torch.Tensor.unique_consecutive": ("tensor|tensors", "arguments", "size", "the size of its result depends on the data"),
    "torch.Tensor.to": ("tensor", "moved", UNKNOWN, "goes where its arguments say"),
    "torch.Tensor.tolist": ("numbers", "host", "yes", "the host needs the values"),
    "torch.Tensor.type_as": ("tensor", "moved", UNKNOWN, "goes where its argument is"),
    "torch.as_tensor": ("tensor", "device-argument", "no", "host data; a device argument copies it"),
    "torch.compile": ("same", "none", "no", "returns its argument, wrapped"),
    "torch.cuda.Event.synchronize": ("none", "none", "yes", "that is its purpose"),
    "torch.cuda.Stream.synchronize": ("none", "none", "yes", "that is its purpose"),
    "torch.cuda.empty_cache": ("none", "none", "yes", "the driver frees memory once the device is idle"),
    "torch.cuda.synchronize": ("none", "none", "yes", "that is its purpose"),
    "torch.empty": ("tensor", "device-argument", "no", "its contents are what the memory held, as if drawn"),
    "torch.from_numpy": ("tensor", "host", "no", "shares the array's memory"),
    "torch.corrcoef": ("tensor", "arguments", "some", "weights are checked on the host"),
    "torch.cov": ("tensor", "arguments", "some", "weights are checked on the host"),
    "torch.index_fill": ("tensor", "arguments", "some", "a value that is a tensor is read"),
    "torch.linspace": ("tensor", "device-argument", "some", "ends that are tensors are read"),
    "torch.logspace": ("tensor", "device-argument", "some", "ends that are tensors are read"),
    "torch.masked_fill": ("tensor", "arguments", "some", "a value that is a tensor is read"),
    "torch.repeat_interleave": ("tensor", "arguments", "some", "without output_size, repeats that are a tensor are read"),
    "torch.load": ("any", "host", "no", "reads a file"),
    "torch.nn.utils.clip_grad_norm_": ("tensor", "arguments", "no", "returns the norm on the device"),
    "torch.save": ("none", "none", "yes", "copies every tensor to the host"),
    "torch.tensor": ("tensor", "device-argument", "no", "host data; a device argument copies it"),
    "torch.unique": ("tensor|tensors", "arguments", "size", "the size of its result depends on the data"),
    "torch.unique_consecutive": ("tensor|tensors", "arguments", "size", "the size of its result depends on the data"),
    "torch.utils.data.DataLoader": ("loader", "host", "no", "workers prepare batches on the host"),
}
# Contents that differ from call to call although no generator is involved.
UNINITIALISED = {"empty", "empty_like", "empty_strided", "new_empty", "empty_permuted"}


def kinds_of(annotation: str) -> set[str]:
    """The kinds of values that a stub's or a signature's annotation stands for."""
    text = re.sub(r"\b(torch|builtins|typing|numpy|np|_typing)\.", "", annotation.strip().strip("'\""))
    if not text or text in ("Any", "Incomplete", "inspect._empty"):
        return {"any"}
    union = re.fullmatch(r"(?:Union|Optional)\[(.*)\]", text)
    parts = split(union.group(1), ",") if union else split(text, "|")
    if len(parts) > 1:
        return set().union(*(kinds_of(part) for part in parts))
    for kind, pattern in {
        "tensors": r"return_types\..*|[tT]uple\[.*Tensor.*\]|[lL]ist\[.*Tensor.*\]|Sequence\[Tensor\]",
        "tensor": r"Tensor|Self",
        "bool": r"_?bool",
        "number": r"_?int|_?float|_?complex|Number|SymInt|_symint|Scalar",
        "sizes": r"Size|_size|[tT]uple\[_?(int|symint).*\]|[lL]ist\[_?(int|symint)\]",
        "text": r"_?str",
        "none": r"None|NoReturn",
        "device": r"device|_device",
        "dtype": r"dtype|_dtype",
        "array": r"ndarray.*|NDArray.*",
    }.items():
        if re.fullmatch(pattern, parts[0]):
            return {kind}
    return {"any"}


def split(text: str, separator: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def stub_kinds(path: Path, of_class: str | None = None) -> dict[str, set[str]]:
    """Names of a stub file's functions, or of one class's methods, with the kinds of all overloads."""
    body = ast.parse(path.read_text()).body
    if of_class:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == of_class).body
    found: dict[str, set[str]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
                continue
            annotation = ast.unparse(node.returns) if node.returns else ""
            found.setdefault(node.name, set()).update(kinds_of(annotation))
    return found


def schemas() -> dict[str, list]:
    found: dict[str, list] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            found.setdefault(schema.name.removeprefix("aten::"), []).append(schema)
    return found


def tags_of(name: str) -> list[set[str]]:
    """The tags of each overload that does not write into a given tensor."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = [getattr(packet, one) for one in packet.overloads()] if packet is not None else []
    is_plain = lambda one: not any(argument.is_out for argument in one._schema.arguments)  # noqa: E731
    return [{str(tag).removeprefix("Tag.") for tag in one.tags} for one in overloads if is_plain(one)]


def row(returns: set[str], source: str, **given) -> dict:
    plain = {"in_place": "no", "draws": "no", "place": "none", "waits": UNKNOWN, "reason": ""}
    # A kind that is not known says nothing beside one that is.
    kinds = returns - {"any"} or {"any"}
    return plain | {"returns": "|".join(sorted(kinds)), "source": source} | given


def of_schemas(name: str, kinds: set[str], native: dict[str, list], source: str) -> dict:
    """A row of one of PyTorch's own operations."""
    overloads = native.get(name, [])
    is_tensor = lambda argument: "Tensor" in str(argument.type)  # noqa: E731
    plain = [one for one in overloads if not any(argument.is_out for argument in one.arguments)]
    written = any(one.arguments and one.arguments[0].alias_info and one.arguments[0].alias_info.is_write for one in plain)
    makes = [one for one in plain if not any(map(is_tensor, one.arguments)) and any(a.name == "device" for a in one.arguments)]
    takes = [one for one in plain if any(map(is_tensor, one.arguments))]
    tags = tags_of(name)
    place = "device-argument" if makes else "arguments" if takes else "none"
    if not kinds & {"tensor", "tensors", "mask"}:
        place = "host" if kinds & {"number", "bool", "sizes", "text"} else "none"
    draws = any("nondeterministic_seeded" in one for one in tags) and "dropout" not in name or name in UNINITIALISED
    # The size or the value of the result depends on the data, so the host has to read it.
    by_size = [bool(one & {"dynamic_output_shape"}) for one in tags]
    by_value = [bool(one & {"dynamic_output_shape", "data_dependent_output"}) for one in tags]
    waits = "some" if any(by_value) else UNKNOWN
    if by_value and all(by_value):
        waits = "size" if all(by_size) else "yes"
    return row(kinds, source, in_place="yes" if written else "no", draws="yes" if draws else "no", place=place, waits=waits)


def samples():
    """PyTorch's own operations with their samples; they import a test library that nothing here uses."""
    if "expecttest" not in sys.modules:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def names_of(operation) -> list[str]:
    """The names that the operation has in Python, apart from its form in place."""
    own = [operation.name] + [alias.name for alias in operation.aliases]
    names = [f"torch.{name}" for name in own]
    if operation.method_variant is not None:
        names += [f"torch.Tensor.{name}" for name in own]
    return names


def first_samples(operation, device: str):
    return itertools.islice(operation.sample_inputs(device, torch.float32, requires_grad=False), MOST_SAMPLES)


def masks() -> set[str]:
    """Operations whose results are always of type bool."""
    found = set()
    for operation in samples():
        if torch.float32 not in operation.supported_dtypes("cpu"):
            continue
        types_seen = set()
        try:
            for sample in first_samples(operation, "cpu"):
                value = operation.op(sample.input, *sample.args, **sample.kwargs)
                types_seen.add(value.dtype if isinstance(value, torch.Tensor) else None)
        except Exception as problem:  # A sample that needs a device or a library that is not here says nothing.
            print(f"{operation.name}: {type(problem).__name__}", file=sys.stderr)
            continue
        if types_seen == {torch.bool}:
            found.update(names_of(operation))
    return found


def waits_and_homes(function, operation) -> tuple[str, set[str]]:
    """Whether the host waited in all of the samples, some or none, and the devices of their results."""
    waited, homes = [], set()
    for sample in first_samples(operation, "cuda"):
        function(sample.input, *sample.args, **sample.kwargs)  # Compiles and allocates first.
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            value = function(sample.input, *sample.args, **sample.kwargs)
            waited.append(False)
        except RuntimeError as problem:
            if "synchroniz" not in str(problem):
                raise
            waited.append(True)
            value = None
        finally:
            torch.cuda.set_sync_debug_mode("default")
        values = value if isinstance(value, (tuple, list)) else [value]
        homes |= {one.device.type for one in values if isinstance(one, torch.Tensor)}
    return "yes" if waited and all(waited) else "some" if any(waited) else "no", homes


def measured_part(part: int) -> tuple[dict[str, str], dict[str, str]]:
    """Waits and places of every PARTS-th operation."""
    waits: dict[str, str] = {}
    places: dict[str, str] = {}
    for operation in samples()[part::PARTS]:
        if torch.float32 not in operation.supported_dtypes("cuda"):
            continue
        in_place = [f"{name}_" for name in names_of(operation) if name.startswith("torch.Tensor.")]
        for names, function in [(names_of(operation), operation.op), (in_place, operation.inplace_variant)]:
            if function is None:
                continue
            try:
                waited, homes = waits_and_homes(function, operation)
            except Exception as problem:  # A sample that this form does not take says nothing.
                print(f"{names}: {type(problem).__name__}: {problem}", file=sys.stderr)
                continue
            waits |= {name: waited for name in names}
            if homes in ({"cuda"}, {"cpu"}):
                places |= {name: "arguments" if "cuda" in homes else "host" for name in names}
    return waits, places


def measure(path: Path) -> None:
    """Runs every sample on the GPU and notes whether the host waited and where the result is. Most of the time goes to
    kernels that are compiled at their first use, so several processes share the operations."""
    waits: dict[str, str] = {}
    places: dict[str, str] = {}
    with ProcessPoolExecutor(PARTS, multiprocessing.get_context("spawn")) as processes:
        for some_waits, some_places in processes.map(measured_part, range(PARTS)):
            waits |= some_waits
            places |= some_places
    document = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "waits": waits, "places": places}
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def torch_rows() -> dict[str, dict]:
    native = schemas()
    stubs = Path(torch.__file__).parent / "_C"
    rows: dict[str, dict] = {}
    for name, kinds in stub_kinds(stubs / "_VariableFunctions.pyi").items():
        if not name.startswith("_") and callable(getattr(torch, name, None)):
            rows[f"torch.{name}"] = of_schemas(name, kinds, native, "stub")
    for name, kinds in stub_kinds(stubs / "__init__.pyi", "TensorBase").items():
        if not name.startswith("_"):
            rows[f"torch.Tensor.{name}"] = of_schemas(name, kinds, native, "stub")
    for module, prefix in [(torch.linalg, "linalg_"), (torch.fft, "fft_"), (torch.special, "special_")]:
        for name in dir(module):
            own = [str(one.returns[0].type) if one.returns else "" for one in native.get(prefix + name, [])]
            if own and not name.startswith("_"):
                kinds = {"tensors"} if any(len(one.returns) > 1 for one in native[prefix + name]) else {"tensor"}
                rows[f"{module.__name__}.{name}"] = of_schemas(prefix + name, kinds, native, "schema")
    functional = Path(torch.__file__).parent / "nn" / "functional.pyi"
    for name, kinds in stub_kinds(functional).items():
        if not name.startswith("_"):
            rows[f"torch.nn.functional.{name}"] = row(kinds, "stub", place="arguments", draws="yes" if "dropout" in name else "no")
    for name in dir(torch.cuda) + dir(torch.distributed):
        for module in (torch.cuda, torch.distributed):
            value = getattr(module, name, None)
            if inspect.isfunction(value) and not name.startswith("_"):
                kinds = annotated(value)
                place = "host" if kinds & {"number", "bool", "text", "sizes"} else "none"
                rows[f"{module.__name__}.{name}"] = row(kinds, "signature", place=place)
    for name in ("is_tensor", "is_storage", "is_grad_enabled", "is_autocast_enabled", "is_inference_mode_enabled"):
        rows[f"torch.{name}"] = row({"bool"}, "signature", place="host", waits="no")
    return rows | torch_classes()


def torch_classes() -> dict[str, dict]:
    rows = {}
    for module, base, kind in [
        (torch.nn, torch.nn.Module, "module"),
        (torch.optim, torch.optim.Optimizer, "optimizer"),
        (torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler, "scheduler"),
        (torch.utils.data, torch.utils.data.Dataset, "dataset"),
        (torch.utils.data, torch.utils.data.Sampler, "sampler"),
    ]:
        for name, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, base) and not name.startswith("_"):
                rows[f"{module.__name__}.{name}"] = row({kind}, "signature", waits="no")
    return rows


def annotated(function) -> set[str]:
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return {"any"}
    return kinds_of(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def neighbours() -> dict[str, dict]:
    """Rows of numpy, transformers, Lightning and accelerate."""
    import accelerate
    import lightning
    import numpy
    import transformers

    rows = {}
    for name, value in vars(numpy).items():
        if not name.startswith("_") and (isinstance(value, numpy.ufunc) or inspect.isroutine(value)):
            kinds = {"array"} if isinstance(value, numpy.ufunc) else annotated(value)
            rows[f"numpy.{name}"] = row(kinds, "signature", place="host", waits="no")
    for name in dir(transformers):
        if name.startswith("get_") and "schedule" in name:
            rows[f"transformers.{name}"] = row({"scheduler"}, "signature", waits="no")
        elif name.startswith("AutoModel"):
            rows[f"transformers.{name}.from_pretrained"] = row({"module"}, "signature", place="host", waits="no")
            rows[f"transformers.{name}.from_config"] = row({"module"}, "signature", place="host", waits="no")
    rows["transformers.Adafactor"] = row({"optimizer"}, "signature", waits="no")
    for owner in (accelerate.Accelerator, lightning.Fabric, lightning.LightningModule, lightning.Trainer):
        prefix = f"{owner.__module__.split('.')[0]}.{owner.__name__}"
        for name, value in vars(owner).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                kinds = annotated(value)
                place = "host" if kinds & {"number", "bool", "text"} else "none"
                rows[f"{prefix}.{name}"] = row(kinds, "signature", place=place)
    return rows


def write(path: Path, measured: dict) -> None:
    import accelerate
    import lightning
    import numpy
    import transformers

    rows = torch_rows() | neighbours()
    for name in masks() & rows.keys():
        if rows[name]["returns"] == "tensor":
            rows[name]["returns"] = "mask"
            rows[name]["source"] = "sample"
    for name, waits in measured.get("waits", {}).items():
        if name in rows:
            rows[name]["waits"] = "size" if rows[name]["waits"] == "size" and waits == "yes" else waits
            # A factory's samples name the device; without it the result is on the host.
            if rows[name]["place"] != "device-argument":
                rows[name]["place"] = measured["places"].get(name, rows[name]["place"])
            rows[name]["source"] = "measured"
    for name, (returns, place, waits, reason) in BY_HAND.items():
        known = rows.get(name, row(set(returns.split("|")), "hand"))
        rows[name] = known | {"returns": returns, "place": place, "waits": waits, "source": "hand", "reason": reason}
    version = torch.__version__.split("+")[0]
    where = measured.get("device", "not measured")
    head = [
        "# Calls of libraries: what they return, change, and wait for. Written by bench/api_table.py; do not edit.",
        f"# versions: torch {version}, numpy {numpy.__version__}, transformers {transformers.__version__}, "
        f"lightning {lightning.__version__}, accelerate {accelerate.__version__}",
        f"# waits and places measured on: {where}",
        "\t".join(COLUMNS),
    ]
    lines = ["\t".join([name] + [rows[name][column] for column in COLUMNS[1:]]) for name in sorted(rows)]
    path.write_text("\n".join(head + lines) + "\n")
    print(f"{len(lines)} rows, {sum(row['waits'] == UNKNOWN for row in rows.values())} of them without a measured wait")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", path]:
            measure(Path(path))
        case ["write", path, *measured]:
            write(Path(path), json.loads(Path(measured[0]).read_text()) if measured else {})
        case _:
            sys.exit(__doc__)
