"""Collects a script's losses: the values whose backward is called, kept on their device and read at the end.

`Tensor.backward` looks up `torch.autograd.backward` when it is called, so that wrapping one covers both.
"""
import functools

# More backward calls per step than this come from a pipeline or a list: the first ones stand for the step.
MOST_PER_STEP = 64
UNSCALED = "_headroom_unscaled"


class Losses:
    def __init__(self):
        self.is_scaled = False
        self.clear()

    def clear(self):
        self.steps = []
        self.current = []
        self.seen = 0
        self.is_collecting = True
        # Nested backward calls, as from checkpointing, count as one.
        self.depth = 0
        self.values = {}

    def watch(self):
        SHARED.when_loaded("torch.autograd", self.watch_backward)
        SHARED.when_loaded("torch.amp.grad_scaler", self.watch_scaler)

    def watch_backward(self, module):
        original = module.backward

        @functools.wraps(original)
        def backward(tensors, *arguments, **named):
            if self.is_collecting and not self.depth:
                SHARED.guarded(self.keep, tensors)
            self.depth += 1
            try:
                return original(tensors, *arguments, **named)
            finally:
                self.depth -= 1

        # Hides the wrapper from compilers.
        backward._torchdynamo_disable = True
        module.backward = backward

    def watch_scaler(self, module):
        """Keeps the unscaled loss with the scaled one."""
        original = module.GradScaler.scale

        @functools.wraps(original)
        def scale(scaler, outputs):
            scaled = original(scaler, outputs)
            if self.is_collecting and scaled is not outputs:
                SHARED.guarded(self.keep_unscaled, scaler, outputs, scaled)
            return scaled

        module.GradScaler.scale = scale

    def keep_unscaled(self, scaler, outputs, scaled):
        if hasattr(scaled, "detach") and scaler.is_enabled():
            self.is_scaled = True
            setattr(scaled, UNSCALED, outputs.detach())

    def keep(self, tensors):
        import torch

        self.seen += 1
        if len(self.current) >= MOST_PER_STEP or SHARED.is_capturing():
            return
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        kept = []
        for tensor in given:
            value = getattr(tensor, UNSCALED, tensor).detach()
            # A copy: the script or a CUDA graph may overwrite the original.
            kept.append(value.clone() if value.numel() == 1 else value.sum())
        self.current.append(kept)

    def end_step(self):
        if self.is_collecting:
            self.steps.append(self.current)
            self.current = []

    def read(self):
        """Waits for the device, so call it only when nothing is timed any more."""
        return [[self.value(kept) for kept in step] for step in self.steps]

    def value(self, kept):
        key = id(kept)
        if key not in self.values:
            self.values[key] = sum(number(value) for value in kept)
        return self.values[key]


def number(value):
    try:
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
        return float(value.float().item())
    except Exception:  # noqa: BLE001
        return float("nan")
