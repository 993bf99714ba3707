"""Detects the steps of a script that updates its weights by hand after `backward`, without an optimizer of torch.optim.

The weights are the leaves of the first backward pass. A step ends with the first call of a module in training after they
have changed: nothing of the next step has been computed then. Without such a call, with the next backward pass. Values are
compared until two steps had equally many backward passes; from then on those are counted, and no device is waited for.
"""
import functools
import weakref

WHO = "by hand"
# Weights that are compared, and values of each.
WEIGHTS, VALUES = 4, 64
# Calls of modules that may come between a backward pass and the update, such as those of a metric.
MOST_BETWEEN = 3


class ByHand:
    def __init__(self):
        # Called once the weights are known.
        self.at_weights = []
        self.is_over = False
        self.reset()

    def reset(self):
        """Also called in a forked process, which may train on its own."""
        self.depth = 0
        self.weights = []
        self.samples = []
        # Backward passes since the last step, and those of a step once they are known.
        self.passes = 0
        self.before = None
        self.per_step = None
        self.between = 0
        self.put_back = None

    def watch(self):
        SHARED.when_loaded("torch.autograd", self.watch_backward)

    def end(self):
        """An optimizer is made: its steps are the script's."""
        self.is_over = True
        self.leave_calls()

    def watch_backward(self, module):
        original = module.backward

        @functools.wraps(original)
        def backward(tensors, *arguments, **named):
            if self.is_over or self.depth:
                return original(tensors, *arguments, **named)
            SHARED.guarded(self.before_pass, tensors)
            self.depth += 1
            try:
                return original(tensors, *arguments, **named)
            finally:
                self.depth -= 1
                SHARED.guarded(self.after_pass)

        # Hides the wrapper from compilers.
        backward._torchdynamo_disable = True
        module.backward = backward

    def before_pass(self, tensors):
        import torch

        if self.put_back is not None:
            self.leave_calls()
            if self.has_updated():
                self.mark()
        if not self.weights:
            given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self.weights = [weakref.ref(one) for one in leaves_of(given)]
            for function in self.at_weights if self.weights else []:
                function()

    def after_pass(self):
        if not self.weights:
            return
        self.passes += 1
        if self.per_step is None:
            self.samples = self.sampled()
        if self.per_step in (None, self.passes):
            self.stand_before_calls()

    def live_weights(self):
        return [one for one in (reference() for reference in self.weights) if one is not None]

    def sampled(self):
        live = self.live_weights()
        chosen = live[:: max(1, len(live) // WEIGHTS)]
        return [values_of(one).clone() for one in chosen]

    def has_updated(self):
        import torch

        if self.per_step is not None:
            return self.passes >= self.per_step
        now = self.sampled()
        return len(now) == len(self.samples) and any(not torch.equal(*pair) for pair in zip(now, self.samples))

    def stand_before_calls(self):
        import torch
        from torch import nn

        original = nn.Module.__call__
        self.between = 0

        @functools.wraps(original)
        def call(module, *arguments, **named):
            if nn.Module.__call__ is not call or not module.training or not torch.is_grad_enabled():
                return original(module, *arguments, **named)
            # Only this call: neither its parts nor compilers see the wrapper.
            nn.Module.__call__ = original
            SHARED.guarded(self.before_call, call)
            return nn.Module.__call__(module, *arguments, **named)

        def put_back():
            if nn.Module.__call__ is call:
                nn.Module.__call__ = original

        nn.Module.__call__, self.put_back = call, put_back

    def before_call(self, call):
        from torch import nn

        if self.has_updated():
            self.put_back = None
            self.mark()
        elif self.between < MOST_BETWEEN:
            self.between += 1
            nn.Module.__call__ = call

    def leave_calls(self):
        put_back, self.put_back = self.put_back, None
        if put_back is not None:
            put_back()

    def mark(self):
        if self.per_step is None and self.before == self.passes:
            self.per_step, self.samples = self.passes, []
        self.before, self.passes = self.passes, 0
        SHARED.LOOP.after_step_of(WHO)


def leaves_of(tensors):
    """The tensors that get a gradient from these."""
    waiting = [one.grad_fn for one in tensors]
    seen, found = set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            found.append(node.variable)
        waiting.extend(following for following, _ in node.next_functions)
    return found


def values_of(tensor):
    values = tensor.detach().reshape(-1)
    return values[:: max(1, values.numel() // VALUES)][:VALUES]
