"""Switches remedies on and off between the steps of a running script, as the search orders.

HEADROOM_CONDUCTOR is the path of the search's socket. After some steps the script says which switches there are
(`switches.py`), and from then on it waits for an order at the end of every block of steps. An order names the switches
that are on, the steps in which they settle and the steps to time. A switch acts at a step's end: between the optimizer's
step and the next batch.

A block's times are read from events at its end, so the device is waited for once per block. A step says which shapes its
inputs had, and whether the script evaluated, saved or printed in it. A block is void if something was compiled among its
timed steps, if compiled code fell back to eager execution, or if there was nothing to switch.

A shadow order records the calls of one step and replays them with and without a switch (`shadow.py`). Weights that a
switch has moved stay as they are: the process is thrown away, and what is kept is proved in fresh ones.

A process of several ranks is not conducted, and neither is one whose optimizer's steps are replayed.
"""
import functools
import os
import sys
import time
import zlib

SOCKET = os.environ.get("HEADROOM_CONDUCTOR")
# Steps before the script offers its switches.
WARMUP = int(os.environ.get("HEADROOM_CONDUCTOR_WARMUP", "3"))
# More steps to settle while something is compiled, or while workers' batches are left from a slower block.
MOST_SETTLING = 24
MEASURE = SHARED.part("measure")
MESSAGES = SHARED.part("messages")


class Conductor:
    """One process's side, advanced by marks: a listener of `SHARED.LOOP`."""

    name = "taking orders"

    def __init__(self, moments, batches):
        self.moments, self.batches = moments, batches
        self.meter = MEASURE.Meter(moments, SHARED.part("losses").Losses(), batches, SHARED.part("sources").Sources())
        self.context = None
        self.error = None
        self.line = None
        self.table = {}
        self.steps = 0
        self.order = None
        self.is_over = False
        # Shown by the current step so far.
        self.shapes = []
        self.apart = None
        self.clear_block()

    def clear_block(self):
        self.settled = 0
        self.extra = 0
        # Batches that workers had ready when the timed steps began, and whether those are used up first.
        self.stock = None
        self.is_drained = False
        self.taken = []
        self.rows = []
        self.begun = None
        self.declined = None
        self.compiled = MEASURE.compile_seconds()

    def reset(self):
        """Called in a forked process, which takes no orders."""
        self.is_over = True
        self.line = None

    def found_profiler(self):
        pass

    def at_exit(self):
        if self.line is not None and not self.is_over:
            self.is_over = True
            self.line.report("ended", steps=self.steps)

    def step(self, is_mark, is_changed):
        if not is_mark or self.is_over:
            return
        self.steps += 1
        try:
            self.mark()
        except Exception as error:
            self.fail(None, error)

    def mark(self):
        shape, self.shapes = "|".join(self.shapes), []
        apart, self.apart = self.apart, None
        self.batches.end_step(is_timed=False)
        if self.order is None:
            if self.steps >= WARMUP:
                self.greet()
                self.follow()
            return
        if self.order["kind"] == "shadow":
            self.check_shadow()
            self.follow()
            return
        if self.taken:
            self.take_time()
            self.rows.append((shape, apart))
            if len(self.rows) >= self.order["steps"]:
                if self.drew_on_stock():
                    self.time_again()
                    return
                self.end_block()
                self.follow()
            return
        self.settled += 1
        if self.settled >= self.order["settle"] and not self.is_unsettled():
            self.begun = SHARED.part("switches").mark(self.context)
            self.stock = self.batches.ready_now()
            self.take_time()

    def is_unsettled(self):
        """Whether the last step compiled something, or took a batch that workers had made before a block that uses them
        up."""
        before, self.compiled = self.compiled, MEASURE.compile_seconds()
        has_left = self.is_drained and any(
            one["workers"] and self.settled < min(depth(one), MOST_SETTLING) for one in self.batches.trained_on()
        )
        if (self.compiled > before or has_left) and self.extra < MOST_SETTLING:
            self.extra += 1
            return True
        return False

    def drew_on_stock(self):
        """Whether the timed steps took batches faster than workers make them: the next ones would take longer."""
        before, now = self.stock, self.batches.ready_now()
        return not self.is_drained and before is not None and now is not None and before - now > 1

    def time_again(self):
        """Once the batches are used up that were made before."""
        self.taken, self.rows = [], []
        self.settled, self.extra, self.is_drained = 0, 0, True

    def take_time(self):
        self.taken.append((time.perf_counter(), SHARED.device_event()))

    def end_block(self):
        seconds, measured_on = SHARED.seconds_between(self.taken)
        void = SHARED.part("switches").void(self.context, self.begun, len(self.rows))
        steps = [
            {"seconds": time, "shape": shape, "apart": apart} for time, (shape, apart) in zip(seconds, self.rows)
        ]
        self.line.report("block", number=self.order["number"], steps=steps, measured_on=measured_on, void=void)

    def greet(self):
        """Connects, and offers the switches."""
        self.line = MESSAGES.Line(SOCKET)
        self.table = SHARED.part("switches").table()
        modules = [root.module for root in self.moments.roots if root.module is not None]
        optimizers = self.moments.live_optimizers()
        self.meter.steps = self.steps
        facts = functools.lru_cache(None)(lambda: self.meter.content())
        self.context = SHARED.part("context").Context(modules, optimizers, facts=facts)
        switches = []
        for switch in self.table.values():
            try:
                obstacle = switch.applies(self.context)
            except Exception as error:  # noqa: BLE001
                obstacle = f"cannot tell: {error!r}"
            switches.append(
                {"name": switch.name, "where": switch.where, "settle": int(switch.settle), "obstacle": obstacle}
            )
        device = next((str(one.device) for one in self.context.parameters()), "cpu")
        self.line.report("hello", version=MESSAGES.VERSION, device=device, steps=self.steps, switches=switches)

    def follow(self):
        """Waits for orders until one of them takes steps."""
        while True:
            order = self.line.order()
            if order is None or order["kind"] == "finish":
                self.is_over = True
                SHARED.leave_at_once()
            self.order = order
            self.clear_block()
            self.switch_to(order["on"])
            if order["kind"] == "shadow":
                self.context.capture()
                return
            if self.declined is None:
                return
            self.line.report("block", number=order["number"], steps=[], measured_on="host", void=self.declined)

    def check_shadow(self):
        found = SHARED.part("shadow").check(self.context, self.table[self.order["switch"]])
        self.context.release()
        answer = {key: found[key] for key in ("verdict", "reason", "largest")}
        self.line.report(
            "shadow", number=self.order["number"], switch=self.order["switch"], **MEASURE.finite(answer)
        )

    def switch_to(self, wanted):
        """Off in the reverse order of the table, on in its order."""
        for name in reversed(list(self.table)):
            if name in self.context.active and name not in wanted:
                self.act(self.table[name], self.table[name].off)
        for name in self.table:
            if name in wanted and name not in self.context.active:
                self.act(self.table[name], self.table[name].on)

    def act(self, switch, function):
        try:
            function(self.context)
        except SHARED.part("switches").NothingToSwitch as error:
            self.declined = f"there is nothing to switch: {error}"
        except Exception as error:  # noqa: BLE001
            self.fail(switch.name, error)

    def fail(self, name, error):
        """Says what went wrong and ends the process: whatever a switch left behind is gone with it."""
        self.is_over = True
        if self.line is not None:
            self.line.report("failed", switch=name, text=f"{type(error).__name__}: {error}"[:2000])
            SHARED.leave_at_once()
        raise error

    def raised(self, kind, value):
        """Called with the exception that ends the script."""
        if self.line is not None and not self.is_over:
            self.is_over = True
            self.line.report("failed", switch=None, text=f"{kind.__name__}: {value}"[:2000])

    # Things that a step does beside training, and the shapes of its inputs.

    def watch(self):
        SHARED.when_loaded("torch.nn.modules.module", self.watch_modules)
        SHARED.when_loaded("torch.serialization", lambda module: self.watch_function(module, "save", "saving"))
        SHARED.when_loaded("safetensors.torch", lambda module: self.watch_function(module, "save_file", "saving"))
        for stream in (sys.stdout, sys.stderr):
            self.watch_function(stream, "write", "logging")
        SHARED.LOOP.listeners.append(self)
        original = sys.excepthook

        def hook(kind, value, traceback):
            SHARED.guarded(self.raised, kind, value, listener=self)
            original(kind, value, traceback)

        sys.excepthook = hook

    def watch_function(self, owner, name, what):
        original = getattr(owner, name, None)
        if original is None:
            return

        def watched(*arguments, **named):
            self.apart = what
            return original(*arguments, **named)

        try:
            setattr(owner, name, watched)
        except AttributeError:
            # A stream of another kind.
            pass

    def watch_modules(self, module):
        original = module.Module.train

        def train(this, mode=True):
            if not mode:
                self.apart = "evaluation"
            return original(this, mode)

        module.Module.train = train

    def saw_inputs(self, arguments, named):
        """Called with the inputs of every training call of a trained module."""
        leaves = SHARED.part("batches").tensors_in([arguments, named])
        self.shapes.append(f"{zlib.crc32(repr([(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]).encode()):08x}")


def depth(loader):
    return SHARED.part("batches").depth(loader)


def begin():
    if MEASURE.number(os.environ.get("WORLD_SIZE")) not in (None, 1):
        return
    SHARED.part("surroundings").make_quiet()
    moments = SHARED.part("moments").Moments()
    moments.install(os.environ.get("HEADROOM_REMEDIES", ""))
    batches = SHARED.part("batches").Batches(0)
    batches.is_digesting = False
    batches.ends_workers = True
    conductor = Conductor(moments, batches)
    moments.at_training_call.append(conductor.saw_inputs)
    moments.watch()
    batches.watch()
    conductor.watch()
