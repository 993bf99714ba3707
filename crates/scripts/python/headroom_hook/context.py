"""The trained modules and optimizers of this process, the switches that are on, and the last call of each module.

A call is recorded in one step on request: inputs, random state and buffers before it, and the gradient that the script's
own backward pass gave its outputs. `shadow.py` replays it.
"""
import collections
import contextlib
import dataclasses
import functools
import random
import sys

# The last calls of a module that are kept: the last one may get no gradient.
MOST_CALLS = 2


class Context:
    def __init__(self, modules, optimizers, facts=dict, scalers=(), backend="inductor"):
        self.modules = list(modules)
        self.optimizers = list(optimizers)
        self.scalers = list(scalers)
        # The note's facts, for `applies`.
        self.facts = facts
        self.backend = backend
        # Switches that are on, by name, each with the function that switches it off.
        self.active = {}
        # Kept by switches while they are off.
        self.store = {}
        # Compiled code reads its random numbers here in place of drawing them (`shadow_draws.py`).
        self.draws = None
        # A shadow step is replayed.
        self.is_shadowing = False
        self.graphs_run = 0
        # The most compiled graphs that ran per step, by combination of switches.
        self.graphs_per_step = {}
        self.calls = {}
        self.put_back = None

    def parameters(self):
        """Every parameter of the modules and optimizers, once."""
        groups = [group["params"] for optimizer in self.optimizers for group in optimizer.param_groups]
        owned = [one for module in self.modules for one in module.parameters()]
        return list({id(one): one for one in [*owned, *(one for group in groups for one in group)]}.values())

    def combination(self):
        """The states of all switches that guards of compiled code see."""
        names = sorted(name for name, (switch, _) in self.active.items() if switch.is_guarded)
        return (*names, "taped") if self.draws is not None else tuple(names)

    # Recording of one step.

    def capture(self):
        """Called at a step's end: the calls of the next step are recorded, until `end_capture`."""
        from torch import nn

        self.end_capture()
        self.release()
        original = nn.Module.__call__
        roots = {id(module) for module in self.modules}

        @functools.wraps(original)
        def call(module, *arguments, **named):
            if id(module) not in roots or not is_training(module):
                return original(module, *arguments, **named)
            # Inside, the calls of its parts are not wrapped, and compilers see the original.
            nn.Module.__call__ = original
            try:
                return self.record(original, module, arguments, named)
            finally:
                if self.put_back is not None:
                    nn.Module.__call__ = call

        def put_back():
            if nn.Module.__call__ is call:
                nn.Module.__call__ = original

        nn.Module.__call__, self.put_back = call, put_back

    def end_capture(self):
        put_back, self.put_back = self.put_back, None
        if put_back is not None:
            put_back()

    def release(self):
        self.calls = {}

    def record(self, original, module, arguments, named):
        recorded = Call(module, arguments, named)
        versions = [one._version for one in module.parameters()]
        output = original(module, *arguments, **named)
        recorded.changes_parameters = versions != [one._version for one in module.parameters()]
        recorded.watch(output)
        self.calls.setdefault(id(module), collections.deque(maxlen=MOST_CALLS)).append(recorded)
        return output

    def last_calls(self):
        """The last call of each module whose outputs got a gradient."""
        found = ([call for call in calls if call.gradients] for calls in self.calls.values())
        return [calls[-1] for calls in found if calls]


class Call:
    """One call of a trained module."""

    def __init__(self, module, arguments, named):
        import torch

        self.module = module
        self.arguments, self.named = copied((arguments, named))
        self.random = RandomState()
        self.state = ModuleState(module)
        # Keyed by output number, among the outputs that need a gradient.
        self.gradients = {}
        self.changes_parameters = False
        # Gradients come from `backward`, since its checkpoints refuse `autograd.grad`.
        self.accumulates = False
        self.autocast = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")
        ]
        # Computed by `shadow.py` from this call, by the switches that were on.
        self.replays = {}

    def watch(self, output):
        for number, tensor in enumerate(one for one in tensors_of(output) if one.requires_grad):
            tensor.register_hook(functools.partial(self.gradients.__setitem__, number))

    def inputs(self):
        """Fresh copies: a forward pass may write to its inputs."""
        return copied((self.arguments, self.named))

    @contextlib.contextmanager
    def as_called(self):
        """Buffers and autocast as they were at the call; afterwards buffers are as they are now."""
        import torch

        now = ModuleState(self.module)
        torch.clear_autocast_cache()
        try:
            with contextlib.ExitStack() as stack:
                for device, is_enabled, dtype in self.autocast:
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=is_enabled))
                stack.enter_context(torch.enable_grad())
                self.state.restore()
                yield
        finally:
            torch.clear_autocast_cache()
            now.restore()


class RandomState:
    def __init__(self):
        import torch

        numpy = sys.modules.get("numpy")
        self.python = random.getstate()
        self.numpy = numpy.random.get_state() if numpy else None
        self.host = torch.random.get_rng_state()
        self.devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore(self):
        import torch

        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        torch.random.set_rng_state(self.host)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)


class ModuleState:
    """Everything in a module that a forward pass may change: buffers, and attributes of plain types."""

    def __init__(self, module):
        import torch

        self.kept = []
        internal = set(vars(torch.nn.Module()))
        for part in module.modules():
            for owner in (part._buffers, vars(part)):
                for name, value in owner.items():
                    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                        self.kept.append((owner, name, value, value.detach().clone()))
                    elif owner is part._buffers or name in internal or name.startswith("_headroom"):
                        continue
                    elif value is None or isinstance(value, (bool, int, float, str)):
                        self.kept.append((owner, name, value, None))
                    elif type(value) in (list, dict, set):
                        self.kept.append((owner, name, value, value.copy()))

    def restore(self):
        import torch

        with torch.no_grad():
            for owner, name, value, content in self.kept:
                if owner.get(name) is not value:
                    owner[name] = value
                if content is None:
                    continue
                if isinstance(value, torch.Tensor):
                    # Not where several elements share a place: nothing can write there.
                    if 0 not in value.stride():
                        value.data.copy_(content)
                elif isinstance(value, list):
                    value[:] = content
                else:
                    value.clear()
                    value.update(content)


def is_training(module):
    import torch

    return module.training and torch.is_grad_enabled()


def copied(value):
    """The same structure with copies of its tensors, cut off from their graph; other objects are the same."""
    import torch

    if isinstance(value, torch.nn.Parameter):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, tuple):
        items = [copied(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value


def tensors_of(value):
    """The floating-point tensors of an output, in a fixed order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        return []
    return [tensor for item in items for tensor in tensors_of(item)]
