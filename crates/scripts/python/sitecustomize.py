"""Started by the interpreter before the script: waits for torch, detects where a training step ends, and notifies
listeners.

`Recorder` (HEADROOM_RECORD_FOLDER) times some steps and profiles a few. Three phases follow the warm-up: steps with
nothing attached (the true time), steps with a light profiler (operators, runtime calls and kernels), steps with
everything (shapes, stacks, memory). The true time comes first, since a profiler that was once attached to a device may
leave something behind.

`headroom_hook/` next to this file has `by_hand.py`, for scripts without an optimizer, and the parts for `optimize`, read
only on request: `measure.py` (HEADROOM_MEASURE_NOTES), `conductor.py` (HEADROOM_CONDUCTOR) and the remedies
(HEADROOM_REMEDIES).

Everything is guarded: whatever goes wrong here, the script runs as if nothing were there.
"""
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import sys
import threading
import time
import types

FOLDER = os.environ.get("HEADROOM_RECORD_FOLDER")
NOTES = os.environ.get("HEADROOM_RECORD_NOTES", FOLDER)
WARMUP = int(os.environ.get("HEADROOM_RECORD_WARMUP", "3"))
TIMED = int(os.environ.get("HEADROOM_RECORD_TIMED", "8"))
STEPS = int(os.environ.get("HEADROOM_RECORD_STEPS", "3"))
STOP = os.environ.get("HEADROOM_RECORD_STOP") == "1"
# Recording waits until a measurement in the same process is done.
MEASURED_FIRST = bool(os.environ.get("HEADROOM_MEASURE_NOTES"))
# This module, even after the script's own `sitecustomize` has taken its name.
OURS = sys.modules[__name__]


def keep_bytecode(folder):
    """Caches bytecode in a folder of ours, and writes nothing next to the modules. Container images are often built
    without bytecode, and then every start compiles all of torch again, which takes many seconds."""
    spec = importlib.machinery.PathFinder.find_spec("torch")
    home = os.path.dirname((spec and spec.origin) or "")
    if home and not os.path.isdir(os.path.join(home, "__pycache__")):
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False


def run_the_next_sitecustomize():
    """Runs the `sitecustomize` that this file hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class Marks:
    """Detects where a training step ends, from the steps of the optimizers.

    With one optimizer, each of its steps is a mark. With several (a generator and its critic), a mark is a step of the
    one that stepped first, once another has stepped since the last mark; so five steps of a critic do not count as five
    steps.
    """

    def __init__(self):
        self.holder = None
        self.known = set()
        # Steps of each other optimizer since the last mark, and the maximum so far.
        self.since = {}
        self.most = {}

    def step(self, who):
        """Returns whether a training step ends here, and whether the definition of marks has changed."""
        is_new = who not in self.known
        self.known.add(who)
        if self.holder is None:
            self.holder = who
            return True, False
        if who == self.holder:
            is_mark = len(self.known) == 1 or bool(self.since)
            if is_mark:
                for other, count in self.since.items():
                    self.most[other] = max(count, self.most.get(other, 0))
                self.since = {}
            return is_mark, False
        self.since[who] = self.since.get(who, 0) + 1
        if self.since[who] > 3 + 2 * self.most.get(who, 0):
            # The first one is no longer used: this one replaces it.
            self.holder, self.known, self.since, self.most = who, {who}, {}, {}
            return True, True
        return False, is_new


class Steps:
    """Reports the steps of this process's optimizers to listeners as marks.

    A listener has `name` (a verb for messages), `error`, and the functions `step(is_mark, is_changed)`, `found_profiler()`,
    `reset()` and `at_exit()`.
    """

    def __init__(self):
        self.listeners = []
        # `by_hand.ByHand`, once scripts are watched.
        self.by_hand = None
        self.reset()

    def reset(self):
        """Also called in a forked process: its parent's steps are not its own."""
        self.marks = Marks()
        if self.by_hand is not None:
            self.by_hand.reset()
        # Depth of GradScaler.step calls, which may skip the optimizer's step.
        self.scaling = 0
        # An optimizer's step was captured into a CUDA graph: its replays are the steps.
        self.captured = False
        for listener in self.listeners:
            listener.reset()

    def after_optimizer(self, optimizer):
        """Called when an optimizer has ended its step."""
        if is_capturing():
            self.captured = True
        elif not self.scaling:
            # Within GradScaler.step the scaler's end is the mark, whether or not it let the optimizer step.
            self.after_step_of(id(optimizer))

    def made_optimizer(self):
        if self.by_hand is not None:
            self.by_hand.end()

    def after_replay(self, graph):
        if self.captured:
            self.after_step_of(id(graph))

    def after_step_of(self, who):
        is_mark, is_changed = self.marks.step(who)
        for listener in self.listeners:
            guarded(listener.step, is_mark, is_changed, listener=listener)

    def found_profiler(self):
        for listener in self.listeners:
            listener.found_profiler()

    def at_exit(self):
        for listener in self.listeners:
            guarded(listener.at_exit, listener=listener)


class Recorder:
    """The recording phases of one process, advanced by marks."""

    name = "recording"

    def __init__(self):
        self.reset()

    def reset(self):
        """Also called in a forked process: its parent's recording is not its own."""
        self.steps = 0
        self.phase = "warm-up"
        self.steps_in_phase = 0
        self.profiler = None
        self.described = False
        self.light = None
        self.trace = None
        # One entry per mark: the host's clock, and an event on the device if there is one.
        self.timed = []
        self.true_seconds = []
        self.measured_on = None
        self.error = None
        self.is_done = False
        # The script has its own profiler: two cannot run at the same time, so this one is not started.
        self.aside = False
        # Set during our own calls into the profiler, which must not be mistaken for the script's.
        self.calling = False

    def call(self, function, *arguments, **named):
        before, self.calling = self.calling, True
        try:
            return function(*arguments, **named)
        finally:
            self.calling = before

    def found_profiler(self):
        """Steps aside: the script creates its own profiler."""
        if self.calling or self.aside or self.is_done:
            return
        self.aside = True
        ours, self.profiler = self.profiler, None
        if ours is not None:
            self.call(ours.stop)
        remove(self.light)
        self.light = None
        sys.stderr.write("headroom: the script uses its own profiler; recording stops\n")
        sys.stderr.flush()

    def step(self, is_mark, is_changed):
        if self.error is not None or self.is_done:
            return
        if is_changed and self.phase == "timed":
            # The steps timed so far were parts of a step: the next mark is where timing begins.
            self.timed, self.steps_in_phase = [], -1
        if is_mark:
            self.mark()

    def mark(self):
        self.steps += 1
        self.steps_in_phase += 1
        if self.aside:
            return
        if self.phase == "warm-up":
            if MEASURED_FIRST and any(getattr(one, "is_measuring", False) for one in LOOP.listeners):
                self.steps_in_phase = 0
            elif self.steps_in_phase >= (1 if MEASURED_FIRST else WARMUP):
                self.enter("timed" if TIMED > 0 else "light")
        elif self.phase == "timed":
            self.take_time()
            if self.steps_in_phase >= TIMED:
                self.read_times()
                self.enter("light")
        else:
            self.describe()
            self.call(self.profiler.step)
            # One step warms up the profiler, the others are kept; `save` was called for the last.
            if self.steps_in_phase > STEPS:
                self.call(self.profiler.stop)
                self.profiler = None
                self.enter("full" if self.phase == "light" else "done")

    def enter(self, phase):
        self.phase, self.steps_in_phase = phase, 0
        if phase == "timed":
            self.take_time()
        elif phase == "done":
            self.is_done = True
            self.note()
            if STOP:
                sys.stderr.write("headroom: recorded; ending the script\n")
                sys.stderr.flush()
                if not is_one_of_ranks():
                    LOOP.at_exit()
                    leave_at_once()
                raise SystemExit(0)
        else:
            self.start_profiler(everything=phase == "full")

    def take_time(self):
        """Records the time without a wait: the device reports later when it reached this mark."""
        self.timed.append((time.perf_counter(), device_event()))

    def read_times(self):
        """Reads the true step times: from mark to mark on the device, or on the host's clock without a device."""
        self.true_seconds, self.measured_on = seconds_between(self.timed)
        self.timed = []

    def start_profiler(self, everything):
        import torch.profiler as profiler

        self.described = False
        self.profiler = self.call(
            profiler.profile,
            schedule=profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1),
            on_trace_ready=self.save,
            record_shapes=everything,
            profile_memory=everything,
            with_stack=everything,
            with_flops=everything,
        )
        self.call(self.profiler.start)

    def describe(self):
        """Writes the true step times into the header of the trace being recorded."""
        if self.described or self.steps_in_phase < 2:
            return
        self.described = True
        content = {
            "true_step_seconds": self.true_seconds,
            "measured_on": self.measured_on,
            "profiler": self.phase,
            "light_trace": os.path.join("light", os.path.basename(self.light)) if self.light else None,
            "job": os.environ.get("HEADROOM_RECORD_JOB"),
            "cores": cores(),
        }
        self.call(self.profiler.add_metadata_json, "headroom_recording", json.dumps(content))

    def save(self, profiler):
        if self.aside:
            return
        name = f"rank{os.environ.get('RANK', '0')}.{os.getpid()}.pt.trace.json"
        folder = FOLDER if self.phase == "full" else os.path.join(FOLDER, "light")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name)
        profiler.export_chrome_trace(path)
        if self.phase == "full":
            self.trace = path
        else:
            self.light = path

    def note(self):
        """Writes what happened, for the command that started the script."""
        content = {
            "steps": self.steps,
            "trace": self.trace,
            "light_trace": self.light,
            "seconds_without_profiler": self.true_seconds,
            "measured_on": self.measured_on,
            "phase": self.phase,
            "error": self.error,
            "own_profiler": self.aside,
        }
        write_note(os.path.join(NOTES, f"record.{os.getpid()}.json"), content)

    def at_exit(self):
        try:
            if self.phase == "timed" and len(self.timed) > 1 and not self.aside:
                self.read_times()
            if self.profiler is not None and not self.is_done:
                # The script ended first: the recording so far is kept.
                self.describe()
                ours, self.profiler = self.profiler, None
                self.call(ours.stop)
            if self.trace is None and self.light is not None:
                # Nothing else was recorded: the light trace is the trace.
                light, self.light = self.light, None
                self.trace = os.path.join(FOLDER, os.path.basename(light))
                shutil.copyfile(light, self.trace)
                remove(light)
        except Exception as error:  # noqa: BLE001
            self.error = repr(error)
        if self.steps or "torch" in sys.modules:
            self.note()


def remove(path):
    """Removes a light trace, and its folder if it was the last."""
    try:
        if path is not None:
            os.remove(path)
            os.rmdir(os.path.dirname(path))
    except OSError:
        pass


def is_capturing():
    """Whether the current stream is being captured into a CUDA graph."""
    import torch

    cuda = torch.cuda
    return cuda.is_initialized() and cuda.is_available() and cuda.is_current_stream_capturing()


def device_event():
    """An event on the device's stream, which takes a few microseconds and no wait; `None` without a device."""
    import torch

    cuda = torch.cuda
    # The cheaper check first: the other one calls the driver.
    if not cuda.is_initialized() or not cuda.is_available():
        return None
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def cores():
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def seconds_between(taken):
    """Seconds from mark to mark on the device, or on the host's clock without one; and which of the two."""
    events = [event for _, event in taken]
    if len(events) > 1 and all(event is not None for event in events):
        events[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in zip(events, events[1:])], "device"
    times = [host for host, _ in taken]
    return [after - before for before, after in zip(times, times[1:])], "host"


def is_one_of_ranks():
    """Ranks exit in order, since a launcher treats a missing one as a failure."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1")


# Tells the process that started this one that the script is over. A script has hardly a use for it.
OVER = getattr(signal, "SIGRTMIN", signal.SIGUSR2 - 9) + 9
# Seconds after which a process that was told so is ended.
PATIENCE = float(os.environ.get("HEADROOM_PATIENCE", "10"))
WAITING = []


def listen_for_the_end():
    """A process that waits for a child, at a queue for example, would wait for ever once that has left."""
    signal.signal(OVER, wait_and_leave)


def wait_and_leave(*unused):
    """Other children may be about to leave too, so each of them starts the wait anew."""
    for timer in WAITING:
        timer.cancel()
    WAITING[:] = [threading.Timer(PATIENCE, leave_at_once)]
    WAITING[0].daemon = True
    WAITING[0].start()


def leave_at_once():
    """Exits immediately: an orderly exit waits for every child in turn, for minutes if they are many and busy, and for ever
    if one of them waits at a queue."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.kill()
    parent = multiprocessing.parent_process()
    if parent is not None:
        try:
            os.kill(parent.pid, OVER)
        except OSError:
            pass
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def write_note(name, content):
    """Writes atomically: the name appears only when the file is complete."""
    with open(name + ".tmp", "w") as file:
        json.dump(content, file)
    os.replace(name + ".tmp", name)


LOOP = Steps()


def guarded(function, *arguments, listener=None):
    """Calls the function; whatever goes wrong, the script continues."""
    try:
        function(*arguments)
    except Exception as error:  # noqa: BLE001
        for concerned in LOOP.listeners if listener is None else [listener]:
            concerned.error = repr(error)
            sys.stderr.write(f"headroom: {concerned.name} failed: {error!r}\n")


def watch(module):
    """Called when torch's optimizers are loaded."""
    import atexit

    module.register_optimizer_step_post_hook(lambda optimizer, *unused: guarded(LOOP.after_optimizer, optimizer))
    original = module.Optimizer.__init__

    @functools.wraps(original)
    def init(self, *arguments, **named):
        guarded(LOOP.made_optimizer)
        original(self, *arguments, **named)

    module.Optimizer.__init__ = init
    atexit.register(LOOP.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=LOOP.reset)


def watch_scaler(module):
    """Counts steps that GradScaler skips because of non-finite gradients: they are training steps too."""
    scaler = getattr(module, "GradScaler", None)
    original = getattr(scaler, "step", None)
    if original is None:
        return

    @functools.wraps(original)
    def step(self, optimizer, *arguments, **named):
        LOOP.scaling += 1
        try:
            result = original(self, optimizer, *arguments, **named)
        finally:
            LOOP.scaling -= 1
        guarded(LOOP.after_step_of, id(optimizer))
        return result

    scaler.step = step


def watch_graphs(module):
    """Watches CUDA graphs: each replay of one that contains the optimizer's step is a step."""
    graph = getattr(module, "CUDAGraph", None)
    original = getattr(graph, "replay", None)
    if original is None:
        return

    @functools.wraps(original)
    def replay(self, *arguments, **named):
        result = original(self, *arguments, **named)
        guarded(LOOP.after_replay, self)
        return result

    graph.replay = replay


def watch_profilers(module):
    """Called when a module with profilers is loaded: detects when the script creates one."""
    for name in ("profile", "_KinetoProfile", "emit_nvtx", "emit_itt"):
        made = getattr(module, name, None)
        if isinstance(made, type) and "__init__" in vars(made):
            tell(made)


def tell(profiler):
    original = profiler.__init__

    @functools.wraps(original)
    def init(self, *arguments, **named):
        if named.get("enabled", True) is not False and arguments[:1] != (False,):
            guarded(LOOP.found_profiler)
        original(self, *arguments, **named)

    profiler.__init__ = init


# Functions to call with a module once it is loaded, in this order.
WATCHED = {}


def when_loaded(name, function):
    """Calls the function with the module once it is loaded, or now if it is."""
    if name in sys.modules:
        function(sys.modules[name])
    else:
        WATCHED.setdefault(name, []).append(function)


def watch_steps():
    try:
        LOOP.by_hand = part("by_hand").ByHand()
        told = [one.updated_by_hand for one in LOOP.listeners if hasattr(one, "updated_by_hand")]
        LOOP.by_hand.at_weights.extend(told)
        LOOP.by_hand.watch()
    except Exception as error:  # noqa: BLE001
        sys.stderr.write(f"headroom: cannot watch updates by hand: {error!r}\n")
    when_loaded("torch.optim.optimizer", watch)
    when_loaded("torch.amp.grad_scaler", watch_scaler)
    when_loaded("torch.cuda.graphs", watch_graphs)
    when_loaded("torch.profiler.profiler", watch_profilers)
    when_loaded("torch.autograd.profiler", watch_profilers)


class Loader(importlib.abc.Loader):
    def __init__(self, loader, loaded):
        self.loader = loader
        self.loaded = loaded

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        for loaded in self.loaded:
            try:
                loaded(module)
            except Exception as error:  # noqa: BLE001
                sys.stderr.write(f"headroom: cannot watch {module.__name__}: {error!r}\n")

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        loaded = WATCHED.pop(name, None)
        if loaded is None:
            return None
        # The name is no longer watched, so this finds the module itself.
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, loaded)
        return spec


def part(name):
    """Loads a file of `headroom_hook/` as a module, under a name that no script imports, without writing bytecode."""
    private = "_headroom_" + name.replace("/", "_").replace("-", "_")
    if private not in sys.modules:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "headroom_hook", *name.split("/")) + ".py"
        with open(path, encoding="utf-8") as file:
            text = file.read()
        module = types.ModuleType(private)
        module.__file__ = path
        # Gives access to other parts and the names of this file.
        module.SHARED = OURS
        sys.modules[private] = module
        try:
            exec(compile(text, path, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[private]
            raise
    return sys.modules[private]


def begin():
    if FOLDER:
        LOOP.listeners.append(Recorder())
    conducted = bool(os.environ.get("HEADROOM_CONDUCTOR"))
    wanted = conducted or os.environ.get("HEADROOM_MEASURE_NOTES") or os.environ.get("HEADROOM_REMEDIES")
    if not FOLDER and not wanted:
        return
    if os.environ.get("HEADROOM_BYTECODE"):
        keep_bytecode(os.environ["HEADROOM_BYTECODE"])
    sys.meta_path.insert(0, Finder())
    if STOP or os.environ.get("HEADROOM_MEASURE_STOP") == "1":
        listen_for_the_end()
    if os.environ.get("HEADROOM_SCRATCH"):
        # In any case: the script is one of many trial runs.
        part("surroundings").begin()
    if wanted:
        try:
            part("conductor" if conducted else "measure").begin()
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(f"headroom: cannot measure: {error!r}\n")
    watch_steps()


begin()
run_the_next_sitecustomize()
