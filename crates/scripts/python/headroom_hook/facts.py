"""Facts about a script for the note: its modules, optimizers, settings, machine and memory."""
import os
import platform
import sys


def of_module(root):
    """`root` is the `moments.Root` from the module's first call."""
    module = root.module
    if module is None:
        return dict(root.facts)
    return dict(root.facts, compiled=root.facts["compiled"] or is_compiled(module))


def describe_module(module, arguments, named, trained):
    """Describes the module before its first call, as the script made it."""
    import torch
    from torch import nn

    parameters = list(module.parameters())
    first = parameters[0] if parameters else None
    parts = list(module.modules())
    dropouts = [part for part in parts if isinstance(part, nn.modules.dropout._DropoutNd)]
    convolutions = [part for part in parts if isinstance(part, nn.modules.conv._ConvNd)]
    attention = sorted({str(found) for found in map(attention_of, parts) if found})
    device = first.device.type if first is not None else "cpu"
    inputs = [value for value in [*arguments, *named.values()] if isinstance(value, torch.Tensor)]
    return {
        "class": type(module).__name__,
        "parameters": sum(one.numel() for one in parameters),
        "trained": sum(one.numel() for one in parameters if id(one) in trained),
        "bytes": sum(one.numel() * one.element_size() for one in parameters),
        "device": device,
        "dtypes": sorted({str(one.dtype).replace("torch.", "") for one in parameters}),
        "training": module.training,
        "dropouts": sum(1 for part in dropouts if part.p > 0 and part.training) + attention_dropouts(parts),
        "convolutions": len(convolutions),
        "multihead_attentions": sum(1 for part in parts if isinstance(part, nn.MultiheadAttention)),
        "weights_unused": attempt(lambda: len(SHARED.part("remedies/sdpa").with_unused_weights(module)[0])),
        "attention": attention,
        "compiled": is_compiled(module),
        "repeated_blocks": sum(len(blocks) for blocks in repeated_blocks(module)),
        "distributed": is_distributed(module),
        "channels_last": any(is_channels_last(part.weight) for part in convolutions),
        "autocast": torch.is_autocast_enabled(device) if device in ("cpu", "cuda") else False,
        "inputs": [list(value.shape) for value in inputs[:8]],
    }


def attention_of(part):
    """How a model of transformers computes attention."""
    return getattr(getattr(part, "config", None), "_attn_implementation", None)


def attention_dropouts(parts):
    """Counts modules whose dropout is a number, as in attention."""
    names = ("attention_dropout", "attn_dropout", "dropout", "dropout_p", "resid_dropout")
    count = 0
    for part in parts:
        own = vars(part)
        count += any(isinstance(own.get(name), float) and own[name] > 0 and part.training for name in names)
    return count


def is_compiled(module):
    """Whether the module, a part of it or its wrapper is compiled."""
    for part in module.modules():
        if type(part).__name__ == "OptimizedModule" or getattr(part, "_compiled_call_impl", None) is not None:
            return True
        forward = vars(part).get("forward")
        if hasattr(forward, "_torchdynamo_orig_callable"):
            return True
    return False


def is_distributed(module):
    return any("DataParallel" in type(part).__name__ or "FSDP" in type(part).__name__ for part in module.modules())


def is_channels_last(weight):
    import torch

    is_image = weight.dim() == 4 and weight.shape[1] > 1
    return is_image and weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()


def repeated_blocks(module):
    """Lists of at least two modules of one class with parameters, outermost first."""
    from torch import nn

    found = []
    inside = set()
    for part in module.modules():
        if not isinstance(part, (nn.ModuleList, nn.Sequential)) or id(part) in inside:
            continue
        by_class = {}
        for child in part.children():
            if next(child.parameters(), None) is not None and next(child.children(), None) is not None:
                by_class.setdefault(type(child), []).append(child)
        for blocks in by_class.values():
            if len(blocks) > 1:
                found.append(blocks)
                inside.update(id(inner) for block in blocks for inner in block.modules())
    return found


def of_optimizer(optimizer):
    groups = optimizer.param_groups
    parameters = [one for group in groups for one in group["params"]]
    state = [value for kept in optimizer.state.values() if isinstance(kept, dict) for value in kept.values()]
    return {
        "class": type(optimizer).__name__,
        "parameters": len(parameters),
        "has_fused": any("fused" in group for group in groups),
        "fused": any(bool(group.get("fused")) for group in groups),
        "has_foreach": any("foreach" in group for group in groups),
        "foreach": groups[0].get("foreach") if groups else None,
        "capturable": any(bool(group.get("capturable")) for group in groups),
        "device": parameters[0].device.type if parameters else None,
        "bytes": sum(value.numel() * value.element_size() for value in state if hasattr(value, "element_size")),
    }


def of_settings():
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    inductor = sys.modules.get("torch._inductor.config")
    return {
        "tf32": attempt(uses_tf32),
        "cudnn_benchmark": attempt(lambda: torch.backends.cudnn.benchmark),
        "cudnn_deterministic": attempt(lambda: torch.backends.cudnn.deterministic),
        "deterministic": attempt(torch.are_deterministic_algorithms_enabled),
        "threads": attempt(torch.get_num_threads),
        "interop_threads": attempt(torch.get_num_interop_threads),
        "fallback_random": attempt(lambda: inductor.fallback_random) if inductor else False,
    }


def uses_tf32():
    """Whether fp32 GEMMs may use TF32, by either of PyTorch's two settings."""
    import torch

    matmul = torch.backends.cuda.matmul
    try:
        return bool(matmul.allow_tf32)
    except RuntimeError:
        return matmul.fp32_precision == "tf32"


def of_machine():
    torch = sys.modules.get("torch")
    facts = {
        "device": "cpu",
        "device_name": None,
        "capability": None,
        "devices": 0,
        "cores": SHARED.cores(),
        "torch": getattr(torch, "__version__", None) and str(torch.__version__),
        "python": platform.python_version(),
        "platform": sys.platform,
    }
    if torch is not None and torch.cuda.is_available():
        facts["devices"] = torch.cuda.device_count()
        if torch.cuda.is_initialized():
            facts["device"] = "cuda"
            facts["device_name"] = torch.cuda.get_device_name()
            facts["capability"] = list(torch.cuda.get_device_capability())
    return facts


def of_memory():
    torch = sys.modules.get("torch")
    facts = {"peak_bytes": None, "peak_reserved_bytes": None, "device_bytes": None, "peak_resident_bytes": attempt(peak_resident)}
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        facts["peak_bytes"] = torch.cuda.max_memory_allocated()
        facts["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        facts["device_bytes"] = attempt(lambda: torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return facts


def peak_resident():
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def attempt(function):
    try:
        return function()
    except Exception:  # noqa: BLE001
        return None
