"""Shadow steps: a remedy is tried on a recorded call before it is timed.

The last call of each trained module is replayed from the same weights, inputs, buffers and random state, with and
without the remedy, and the gradient that the script's own backward pass gave its outputs is sent back through both.
Outputs, buffers and the gradient of every parameter are compared (`shadow_compare.py`), then one update of the
optimizers from equal gradients (`shadow_update.py`). Weights, buffers, gradients, optimizer state and random state are
left as they were.

Two controls say how much may differ: the reference replayed twice, and replayed with weights, inputs and the gradient of
the outputs moved at random by as much as one rounding of the remedy's arithmetic.
"""
import contextlib
import functools
import inspect
import sys

# Pairs of replays with moved weights that decide about a projection, at most.
MOST_PAIRS = 12
# The script's own replays may differ by this much: kernels that add in no fixed order.
REPEATABLE = 1e-2
# The rows of an answer.
MOST_ROWS = 8


class Different(Exception):
    """The remedy changes something that cannot be a matter of rounding."""


def check(context, switch):
    """`{verdict, reason, largest, replays}`; verdict is "same", "differs" or "not_possible". The switch is off before and
    after; other switches stay as they are."""
    context.end_capture()
    if switch.where != "between_steps":
        return answer("not_possible", f"{switch.name} acts when the script starts: fresh processes are compared")
    if switch.is_on(context):
        raise ValueError(f"{switch.name} is on: a shadow step compares it with the state before")
    shadow = Shadow(context, switch)
    context.is_shadowing = True
    try:
        with untouched(context), without_compiled_code():
            return shadow.compare()
    except Different as error:
        return shadow.answer("differs", str(error))
    except SHARED.part("switches").NothingToSwitch as error:
        return shadow.answer("not_possible", f"there is nothing to switch: {error}")
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        if type(error).__name__ == "OutOfMemoryError":
            release_memory()
            return shadow.answer("not_possible", f"the device has no memory left for a shadow step: {text}")
        if shadow.is_under_remedy:
            return shadow.answer("differs", f"it fails under the remedy: {text}")
        return shadow.answer("not_possible", f"the call cannot be replayed: {text}")
    finally:
        if switch.is_on(context):
            switch.off(context)
        context.is_shadowing = False
        # Compiled code that is on keeps to its own version.
        SHARED.part("switches").follow_all(context)


def answer(verdict, reason, rows=(), replays=0):
    rows = sorted(rows, key=lambda row: -row["excess"])[:MOST_ROWS]
    return {"verdict": verdict, "reason": reason, "largest": list(rows), "replays": replays}


class Shadow:
    def __init__(self, context, switch):
        self.context, self.switch = context, switch
        self.rows = []
        self.replays = 0
        # Relative size of one rounding, in the call that is compared.
        self.unit = switch.unit
        self.is_under_remedy = False

    def answer(self, verdict, reason):
        return answer(verdict, reason, self.rows, self.replays)

    @contextlib.contextmanager
    def remedy(self):
        self.is_under_remedy = True
        self.switch.on(self.context)
        try:
            with compiled_code_again() if self.switch.counts_graphs else contextlib.nullcontext():
                yield
        finally:
            self.switch.off(self.context)
            self.context.draws = None
        self.is_under_remedy = False

    def compare(self):
        update = SHARED.part("shadow_update")
        acts_on = self.switch.acts_on
        why_not = None
        if acts_on == "gradients":
            left_out = update.without_gradient(self.context)
            if left_out:
                raise Different(f"{left_out} parameters got no gradient in this step: filled with zeros, they still move")
        elif acts_on == "forward":
            why_not = self.obstacle()
            if why_not is None:
                for call in self.context.last_calls():
                    self.compare_call(call)
        no_update = update.obstacle(self.context)
        if no_update is None:
            self.rows += update.compare(self.context, self.remedy)
        elif acts_on == "optimizer":
            why_not = no_update
        failed = [row for row in self.rows if row["excess"] > 1]
        if failed:
            return self.answer("differs", SHARED.part("shadow_compare").sentence(failed, len(self.rows)))
        if why_not is not None:
            return self.answer("not_possible", why_not)
        return self.answer("same", f"{len(self.rows)} values agree")

    def obstacle(self):
        """Why no call can be replayed, or `None`."""
        context = self.context
        calls = context.last_calls()
        if not calls:
            return "no gradient reached the outputs of a recorded call"
        if (context.facts() or {}).get("own_cuda_graph"):
            return "the script captures a CUDA graph of its own"
        for module in {id(call.module): call.module for call in calls}.values():
            name = type(module).__name__
            is_sharded = any(hasattr(one, "full_tensor") for one in module.parameters())
            if is_sharded or SHARED.part("facts").is_distributed(module):
                return f"{name} is distributed: a replay would communicate"
        for call in calls:
            if call.changes_parameters:
                return f"the forward pass of {type(call.module).__name__} changes its own parameters"
        return None

    # One call.

    def compare_call(self, call):
        self.unit = unit_of(self.context, call, self.switch)
        reference, noise = self.references(call)
        how = reference.how
        candidate = self.candidate(call, how)
        if how.tally is not None and candidate.tally != reference.tally:
            raise Different(dropout_sentence(reference.tally, candidate.tally))
        rows = SHARED.part("shadow_compare").Rows(call.module, reference, noise, self.unit)
        rows.add(reference, candidate)
        for number in range(1, MOST_PAIRS + 1):
            if rows.is_decided(number - 1):
                break
            # Rounding errors differ from pair to pair, a wrong factor does not.
            rows.add(self.reference(call, how, number), self.candidate(call, how, number))
        self.rows += rows.content()

    def references(self, call):
        """The script's own replay, and how far one rounding moves each value; computed once for all switches alike."""
        key = (self.context.combination(), self.switch.random != "same", self.unit)
        if key not in call.replays:
            how = How()
            reference = self.reference(call, how)
            if not reference.is_finite():
                raise RuntimeError("the script's own outputs or gradients are not finite in this step")
            again = self.reference(call, how)
            apart = reference.distance(again)
            if apart > REPEATABLE:
                raise RuntimeError(f"replayed twice, the script's own pass differs by {apart:.1e}")
            if self.switch.random != "same" and reference.draws:
                how = How(draws=SHARED.part("shadow_draws"))
                reference = self.reference(call, how)
            others = ([again] if how.draws is None else []) + [self.reference(call, how, number) for number in (-1, -2)]
            changes = [SHARED.part("shadow_compare").measure(reference, other) for other in others]
            noise = {name: max(one[name].size for one in changes) for name in reference.values()}
            call.replays[key] = (reference, noise)
        return call.replays[key]

    def reference(self, call, how, number=0):
        return self.replay(call, how, number, is_reference=True)

    def candidate(self, call, how, number=0):
        before = self.context.graphs_run
        result = self.replay(call, how, number, is_reference=False)
        if self.switch.counts_graphs and self.context.graphs_run == before:
            raise SHARED.part("switches").NothingToSwitch("the module runs uncompiled under it")
        if result.unread:
            raise RuntimeError(result.unread)
        return result

    def replay(self, call, how, number, is_reference):
        self.replays += 1
        remedy = contextlib.nullcontext if is_reference else self.remedy
        if how.draws is None:
            return replayed(call, how, number, self.unit, contextlib.nullcontext, remedy)
        # The first replay writes its random numbers, the others read them.
        if self.switch.random == "compiled" and not is_reference:
            return self.compiled_replay(call, how, number)
        draws = how.draws.draws_mode(how.tape)
        result = replayed(call, how, number, self.unit, lambda: draws, remedy)
        result.tally = sorted(draws.tally)
        if how.tape is None:
            how.tape, how.tally = draws.tape, result.tally
        elif draws.missed:
            if is_reference:
                raise RuntimeError(draws.missed)
            raise Different(draws.missed)
        return result

    def compiled_replay(self, call, how, number):
        """Compiled code draws in another order and from other generators, so it reads the tape too."""
        draws = self.context.draws = how.draws.draws_mode(how.tape)
        result = replayed(call, how, number, self.unit, lambda: draws, self.remedy)
        result.tally = sorted(draws.tally)
        result.unread = draws.why_not or draws.missed
        if result.tally != how.tally:
            result.unread = result.unread or "some of its dropout is outside the compiled code"
        return result


class How:
    """How a call is replayed: as the script draws, or with dropout off and random numbers from a tape."""

    def __init__(self, draws=None):
        self.draws = draws
        self.tape = None
        self.tally = None


# Relative size of one rounding, by the bits of a type.
TF32, HALF, BRAIN = 5e-4, 5e-4, 4e-3


def unit_of(context, call, switch):
    """The coarsest arithmetic of the script, of the switches that are on and of this one: a remedy that only adds in another
    order moves a value by a rounding of the script's own."""
    import torch

    units = {torch.bfloat16: BRAIN, torch.float16: HALF}
    found = [switch.unit, *(other.unit for other, _ in context.active.values())]
    found += [units.get(dtype, 0.0) for _, is_enabled, dtype in call.autocast if is_enabled]
    found += [units.get(one.dtype, 0.0) for one in call.module.parameters()]
    if any(one.is_cuda for one in call.module.parameters()) and uses_tf32(call.module):
        found.append(TF32)
    return max(found)


def uses_tf32(module):
    import torch

    facts = SHARED.part("facts")
    if facts.uses_tf32():
        return True
    # cuDNN may use it unless it is told not to.
    kinds = (torch.nn.modules.conv._ConvNd, torch.nn.RNNBase)
    is_of_cudnn = any(isinstance(one, kinds) for one in module.modules())
    return is_of_cudnn and bool(facts.attempt(lambda: torch.backends.cudnn.allow_tf32))


class Replay:
    """Outputs, gradients, and buffers after the pass, by name."""

    def __init__(self, outputs, gradients, buffers, how):
        self.outputs, self.gradients, self.buffers, self.how = outputs, gradients, buffers, how
        self.draws = False
        self.tally = None
        # Why the draws of compiled code could not be put in place.
        self.unread = None

    def values(self):
        return {**self.outputs, **self.gradients, **self.buffers}

    def is_finite(self):
        import torch

        return all(bool(torch.isfinite(one).all()) for one in self.values().values() if one is not None)

    def distance(self, other):
        """The distance over all values together, relative to their size."""
        pairs = [(one, other.values().get(name)) for name, one in self.values().items() if one is not None]
        squares = [(float((a - b).norm() ** 2), float(a.norm() ** 2)) for a, b in pairs if b is not None]
        size = sum(square for _, square in squares)
        return (sum(square for square, _ in squares) / size) ** 0.5 if size else 0.0


def replayed(call, how, number, unit, draws, remedy):
    import torch

    module, tensors_of = call.module, SHARED.part("context").tensors_of
    # The remedy last: it may change what is put back before.
    with call.as_called(), moved(module, unit, number), remedy():
        call.random.restore()
        arguments, named = call.inputs()
        given = tensors_of((arguments, named))
        sent = call.gradients
        if number:
            move_all(given, unit, number)
            # Otherwise their own rounding would be the same each time, and not average out.
            sent = {which: noisy(one, unit, number * 3001 + which) for which, one in sent.items()}
        inputs = [one for one in given if one.requires_grad]
        before = [torch.random.get_rng_state(), *device_states()]
        with draws():
            output = module(*arguments, **named)
            after = [torch.random.get_rng_state(), *device_states()]
            outputs = tensors_of(output)
            leaves = {name: one for name, one in module.named_parameters() if one.requires_grad}
            leaves.update({f"input {which}": one for which, one in enumerate(inputs)})
            try:
                found = gradients_of(paired(sent, outputs), list(leaves.values()), call.accumulates)
            except RuntimeError as error:
                found = None
                if call.accumulates or "heckpoint" not in str(error):
                    raise
        # The remedy may return other types.
        if found is not None:
            gradients = {name: None if one is None else one.detach().float() for name, one in zip(leaves, found)}
            outputs = {f"output {which}": one.detach().float().clone() for which, one in enumerate(outputs)}
            buffers = {f"buffer {name}": one.detach().float().clone() for name, one in module.named_buffers()}
            result = Replay(outputs, gradients, buffers, how)
            result.draws = any(not torch.equal(one, other) for one, other in zip(before, after))
            return result
    # Reentrant checkpoints refuse `autograd.grad`.
    call.accumulates = True
    return replayed(call, how, number, unit, draws, remedy)


def paired(gradients, outputs):
    """Outputs with the gradients that are sent back through them."""
    needing = [one for one in outputs if one.requires_grad]
    if len(needing) <= max(gradients):
        raise Different("an output no longer needs a gradient")
    pairs = [(needing[which], gradient) for which, gradient in gradients.items()]
    for one, gradient in pairs:
        if one.shape != gradient.shape:
            raise Different(f"an output has the shape {list(one.shape)} in place of {list(gradient.shape)}")
    return pairs


def gradients_of(pairs, leaves, accumulates):
    import torch

    outputs, given = [one for one, _ in pairs], [gradient.to(one.dtype) for one, gradient in pairs]
    if not accumulates:
        return torch.autograd.grad(outputs, leaves, given, allow_unused=True)
    if any(getattr(leaf, "_post_accumulate_grad_hooks", None) for leaf in leaves):
        raise RuntimeError("parameters are updated during the backward pass")
    kept = [leaf.grad for leaf in leaves]
    try:
        for leaf in leaves:
            leaf.grad = None
        # Not through the wrappers that collect losses and detect steps.
        inspect.unwrap(torch.autograd.backward)(outputs, given)
        return [leaf.grad for leaf in leaves]
    finally:
        for leaf, gradient in zip(leaves, kept):
            leaf.grad = gradient


@contextlib.contextmanager
def moved(module, unit, number):
    """Weights moved at random by one rounding, in other storage; 0 leaves them alone."""
    kept = [(one, one.data) for one in module.parameters() if one.is_floating_point()] if number else []
    try:
        for which, (one, data) in enumerate(kept):
            one.data = noisy(data, unit, number * 1009 + which)
        yield
    finally:
        for one, data in kept:
            one.data = data


def move_all(tensors, unit, number):
    for which, one in enumerate(tensors):
        one.data = noisy(one.data, unit, number * 2003 + which)


def noisy(data, unit, seed):
    import torch

    generator = torch.Generator(data.device)
    generator.manual_seed(abs(seed) * 65_537 % (1 << 31) + (seed < 0))
    share = max(unit, torch.finfo(data.dtype).eps / 2)
    noise = torch.empty_like(data).normal_(generator=generator)
    return data * (1 + share * noise)


def device_states():
    import torch

    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def dropout_sentence(reference, candidate):
    return f"it drops values in {len(candidate)} places of other sizes or shares, and the script in {len(reference)}"


# The state around a check.


@contextlib.contextmanager
def untouched(context):
    """Random state, gradients and buffers are put back, whatever happens."""
    parts = SHARED.part("context")
    state = parts.RandomState()
    modules = [parts.ModuleState(module) for module in context.modules]
    gradients = [(one, one.grad) for one in context.parameters()]
    try:
        yield
    finally:
        for module in modules:
            module.restore()
        for one, gradient in gradients:
            if one.grad is not gradient:
                one.grad = gradient
        state.restore()


def stance(name):
    """Sets the compiler's stance; compiled code of the script, or of switches that are on, runs uncompiled meanwhile."""
    import torch

    if "torch._dynamo.eval_frame" in sys.modules and hasattr(torch.compiler, "set_stance"):
        return torch.compiler.set_stance(name)
    return contextlib.nullcontext()


without_compiled_code = functools.partial(stance, "force_eager")
compiled_code_again = functools.partial(stance, "default")


def release_memory():
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
