"""Moments of a script at which remedies act, and the remedies' reports.

A remedy is a file in `remedies/` with NAME, CLASS (`same`, `rounding` or `precision`), `applies(facts)` (None or why
not) and `install(hook)`. Its hook is a `Hook`: it registers functions for moments, and each of them is guarded.

A trained module is one that the script calls itself, in training mode, and that has parameters of an optimizer. It is
found by wrapping `nn.Module.__call__` from the first optimizer's construction until each has stepped, except while such
a module runs: later steps and compilers do not see the wrapper.
"""
import functools
import os
import sys
import weakref

# The search for modules ends at this mark at the latest, since an optimizer may never step.
LAST_MARK = 2


class Root:
    """A trained module, and facts about it from its first call."""

    def __init__(self, module, facts):
        self.reference = weakref.ref(module)
        self.facts = facts

    @property
    def module(self):
        return self.reference()


class Hook:
    """One remedy's access to the script's moments."""

    def __init__(self, moments, name, value):
        self.moments = moments
        self.name = name
        # Given after `=`, or `None`.
        self.value = value
        self.kind = None
        self.counts = {}
        self.sentences = []
        self.reason = None
        self.errors = []

    def did(self, thing, what):
        """Counts changes: three calls of `did("DataLoader", "got 4 workers")` read `3 DataLoaders got 4 workers`."""
        self.counts[thing, what] = self.counts.get((thing, what), 0) + 1

    def said(self, sentence):
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    def nothing(self, reason):
        """Records why there was nothing to do; the last reason counts, and only if nothing was done elsewhere."""
        self.reason = reason

    def failed(self, error):
        text = f"{type(error).__name__}: {error}"[:500]
        if text not in self.errors and len(self.errors) < 8:
            self.errors.append(text)

    def guard(self, function):
        """Wraps the function to return `None` instead of raising."""

        @functools.wraps(function)
        def guarded(*arguments, **named):
            try:
                return function(*arguments, **named)
            except Exception as error:  # noqa: BLE001
                self.failed(error)
                return None

        return guarded

    def when_loaded(self, module, function):
        SHARED.when_loaded(module, self.guard(function))

    def at_first_forward(self, function, after_others=False):
        """`function(module, arguments, named)` before the first call of each trained module."""
        found = self.moments.at_first_forward
        found.append((1 if after_others else 0, len(found), self.guard(function)))

    def at_first_step(self, function):
        """`function(optimizer)` before the first step of each optimizer."""
        self.moments.at_first_step.append(self.guard(function))

    def at_mark(self, function):
        """`function(number)` after each step of the loop, counted from 1."""
        self.moments.at_mark.append(self.guard(function))

    def set_and_keep_set(self, function):
        """Calls `function(None)` once torch is loaded, and again wherever the script may have set the opposite since.

        The later calls pass a trained module; before that, querying a device would initialize it.
        """
        guarded = self.guard(function)
        SHARED.when_loaded("torch", lambda module: guarded(None))
        self.at_first_forward(lambda module, *unused: guarded(module))
        self.at_mark(lambda number: [guarded(root.module) for root in self.moments.roots] if number == 1 else None)

    def copies(self, frame):
        """Records a frame where the script copies something and the remedy has changed how."""
        places = self.moments.places
        if places is not None and places.is_open:
            self.guard(places.copy)(frame)

    def outcome(self):
        did = [f"{count} {thing}{'s' if count > 1 else ''} {what}" for (thing, what), count in self.counts.items()]
        did += self.sentences
        nothing = None if did else self.reason or "it found nothing to act on"
        return {"class": self.kind, "did": did, "nothing": nothing, "errors": self.errors}


class Moments:
    name = "applying remedies"

    def __init__(self):
        self.error = None
        self.hooks = {}
        self.at_first_forward = []
        self.at_first_step = []
        self.at_mark = []
        self.optimizers_made = 0
        self.optimizers = []
        self.roots = []
        self.marks = 0
        # Whether `zero_grad` was asked for zeros, until the second mark.
        self.fills_gradients = False
        self.original_zeros = []
        # Dtypes that `torch.autocast` was entered with, until the end of the first step.
        self.autocasts = set()
        self.original_enter = None
        self.original_call = None
        # Functions called with the arguments of every training call of a trained module, once all are known.
        self.at_training_call = []
        self.is_open = True
        # `places.Places`, if a note is requested.
        self.places = None

    # Remedies.

    def install(self, names):
        for spelled in filter(None, (word.strip() for word in names.split(","))):
            name, _, value = spelled.partition("=")
            hook = self.hooks[name] = Hook(self, name, value or None)
            try:
                remedy = load(name)
                hook.kind = remedy.CLASS
                remedy.install(hook)
            except Exception as error:  # noqa: BLE001
                hook.failed(error)

    def outcomes(self):
        return {name: hook.outcome() for name, hook in self.hooks.items()}

    def offered(self, facts):
        """Every remedy, with its class and the reason why it does not apply, or `None`."""
        folder = os.path.join(os.path.dirname(__file__), "remedies")
        found = {}
        for file in sorted(os.listdir(folder)):
            if file.endswith(".py"):
                remedy = load(file[:-3])
                try:
                    obstacle = remedy.applies(facts)
                except Exception as error:  # noqa: BLE001
                    obstacle = f"cannot tell: {error!r}"
                found[remedy.NAME] = {"class": remedy.CLASS, "obstacle": obstacle}
        return found

    # Marks: this is a listener of `SHARED.LOOP`.

    def watch(self):
        SHARED.when_loaded("torch.optim.optimizer", lambda module: self.watch_zeros(module.Optimizer))
        SHARED.when_loaded("torch.nn.modules.module", lambda module: self.watch_zeros(module.Module))
        SHARED.when_loaded("torch.optim.optimizer", self.watch_optimizers)
        SHARED.when_loaded("torch.amp.autocast_mode", lambda module: self.watch_autocast(module.autocast))
        SHARED.when_loaded("torch._dynamo.utils", self.tell_dynamo)
        SHARED.LOOP.listeners.append(self)

    def step(self, is_mark, is_changed):
        if is_mark:
            self.marks += 1
            # Updated by hand, the first mark precedes the call by which the module is found.
            if self.is_open and (self.marks >= LAST_MARK or (self.optimizers and self.have_all_stepped())):
                self.close()
            if self.marks == 2:
                self.let_zeros_alone()
            for function in self.at_mark:
                function(self.marks)

    def found_profiler(self):
        pass

    def reset(self):
        """Called in a forked process, which may train on its own: optimizers and modules already exist."""
        self.marks = 0

    def at_exit(self):
        pass

    # Optimizers.

    def watch_optimizers(self, module):
        original = module.Optimizer.__init__

        @functools.wraps(original)
        def init(optimizer, *arguments, **named):
            original(optimizer, *arguments, **named)
            SHARED.guarded(self.made, optimizer, listener=self)

        module.Optimizer.__init__ = init
        module.register_optimizer_step_pre_hook(self.before_step)

    def made(self, optimizer):
        self.optimizers_made += 1
        self.optimizers.append(weakref.ref(optimizer))
        if self.places is not None:
            SHARED.guarded(self.places.made_optimizer, optimizer, listener=self)
        if self.is_open:
            self.stand_before_calls()

    def live_optimizers(self):
        """Optimizers that took a step, in order of construction."""
        found = [reference() for reference in self.optimizers]
        return [one for one in found if one is not None and getattr(one, "_headroom_stepped", False)]

    def before_step(self, optimizer, *unused):
        if getattr(optimizer, "_headroom_stepped", False):
            return
        optimizer._headroom_stepped = True
        for function in self.at_first_step:
            function(optimizer)

    def watch_zeros(self, owner):
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(this, set_to_none=True):
            self.fills_gradients = self.fills_gradients or not set_to_none
            if not set_to_none and self.places is not None:
                SHARED.guarded(self.places.filled, sys._getframe(1), listener=self)
            return original(this, set_to_none=set_to_none)

        owner.zero_grad = zero_grad
        self.original_zeros.append((owner, zero_grad, original))

    def let_zeros_alone(self):
        for owner, ours, original in self.original_zeros:
            if owner.zero_grad is ours:
                owner.zero_grad = original

    def watch_autocast(self, owner):
        """Watches autocast, which a wrapper around a module's forward may enter unnoticed."""
        original = owner.__enter__

        @functools.wraps(original)
        def enter(this):
            if self.is_open and self.optimizers and getattr(this, "_enabled", False):
                self.autocasts.add(str(getattr(this, "fast_dtype", None)).replace("torch.", ""))
            return original(this)

        owner.__enter__ = enter
        self.original_enter = (owner, enter, original)

    # Modules.

    def stand_before_calls(self):
        from torch import nn

        if self.original_call is None:
            original = self.original_call = nn.Module.__call__

            @functools.wraps(original)
            def call(module, *arguments, **named):
                if not self.is_open or nn.Module.__call__ is not call:
                    return original(module, *arguments, **named)
                if not self.is_trained(module):
                    return original(module, *arguments, **named)
                # Inside a trained module the calls of its parts are not wrapped, and compilers see the original.
                nn.Module.__call__ = original
                try:
                    if not self.is_known(module):
                        SHARED.guarded(self.found_root, module, arguments, named, listener=self)
                    return original(module, *arguments, **named)
                finally:
                    if self.is_open:
                        nn.Module.__call__ = call

            self.our_call = call
        if nn.Module.__call__ is self.original_call:
            nn.Module.__call__ = self.our_call

    def have_all_stepped(self):
        """Whether all live optimizers have stepped: with several, the first mark may precede a module's first call."""
        live = [one for one in (reference() for reference in self.optimizers) if one is not None]
        return all(getattr(one, "_headroom_stepped", False) for one in live)

    def close(self):
        """Called when the first step has ended: modules called from now on are known, or not part of the loop."""
        self.is_open = False
        if self.original_enter is not None:
            owner, ours, original = self.original_enter
            if owner.__enter__ is ours:
                owner.__enter__ = original
        if self.original_call is not None:
            from torch import nn

            if nn.Module.__call__ is self.our_call:
                nn.Module.__call__ = self.original_call
            if self.at_training_call:
                self.follow_calls()

    def follow_calls(self):
        """Stands before the calls of known modules alone. While one runs, nothing is wrapped, and compilers see the
        original."""
        import torch
        from torch import nn

        original = self.original_call

        @functools.wraps(original)
        def call(module, *arguments, **named):
            is_known = any(root.reference() is module for root in self.roots)
            if not is_known or not module.training or not torch.is_grad_enabled():
                return original(module, *arguments, **named)
            nn.Module.__call__ = original
            try:
                for function in self.at_training_call:
                    SHARED.guarded(function, arguments, named, listener=self)
                return original(module, *arguments, **named)
            finally:
                nn.Module.__call__ = call

        self.our_call = nn.Module.__call__ = call

    def tell_dynamo(self, module):
        """Gives dynamo the original call, if it was loaded while ours was installed."""
        if self.original_call is not None and module.unpatched_nn_module_call is self.our_call:
            module.unpatched_nn_module_call = self.original_call

    def updated_by_hand(self):
        """The weights of a script without an optimizer are known."""
        if self.is_open:
            self.stand_before_calls()

    def trained_parameters(self):
        found = [reference() for reference in self.optimizers]
        groups = [group for one in found if one is not None for group in getattr(one, "param_groups", [])]
        by_hand = SHARED.LOOP.by_hand.live_weights() if SHARED.LOOP.by_hand is not None else []
        return {id(one) for one in [*by_hand, *(parameter for group in groups for parameter in group["params"])]}

    def is_trained(self, module):
        import torch

        try:
            if not module.training or not torch.is_grad_enabled():
                return False
            trained = self.trained_parameters()
            return any(id(parameter) in trained for parameter in module.parameters())
        except Exception:  # noqa: BLE001
            return False

    def is_known(self, module):
        """Also true for a part of a known module: checkpointing calls parts again during the backward pass."""
        known = [root.module for root in self.roots]
        return any(part is module for one in known if one is not None for part in one.modules())

    def found_root(self, module, arguments, named):
        root = Root(module, {"class": type(module).__name__, "compiled": False})
        self.roots.append(root)
        describe = SHARED.part("facts").describe_module
        try:
            root.facts = describe(module, arguments, named, self.trained_parameters())
            if self.places is not None:
                self.places.found_root(module)
        except Exception as error:  # noqa: BLE001
            self.error = repr(error)
        for _, _, function in sorted(self.at_first_forward, key=lambda found: found[:2]):
            function(module, arguments, named)


def load(name):
    return SHARED.part("remedies/" + name.replace("-", "_"))
