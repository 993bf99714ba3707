"""Started by the interpreter before the script: waits for torch, counts optimizer steps, profiles a few of them.

Everything is guarded: whatever goes wrong here, the script runs as if nothing were there.
"""
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time

FOLDER = os.environ.get("HEADROOM_RECORD_FOLDER")
NOTES = os.environ.get("HEADROOM_RECORD_NOTES", FOLDER)
WARMUP = int(os.environ.get("HEADROOM_RECORD_WARMUP", "3"))
STEPS = int(os.environ.get("HEADROOM_RECORD_STEPS", "3"))
STOP = os.environ.get("HEADROOM_RECORD_STOP") == "1"


def run_the_next_sitecustomize():
    """The one that this file hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class Recorder:
    """Steps are counted where the first optimizer that steps ends its step."""

    def __init__(self):
        self.reset()

    def reset(self):
        """Also in a process that was forked: what its parent recorded is not its own."""
        self.optimizer = None
        self.steps = 0
        self.profiler = None
        self.trace = None
        self.times = []
        self.warmup_times = []
        self.last = None
        self.error = None
        # The script profiles itself: two profilers cannot run at once, so this one is not started.
        self.aside = False
        # Calls of our own into the profiler, which are not to be taken for the script's.
        self.calling = False

    def call(self, function, *arguments, **named):
        before, self.calling = self.calling, True
        try:
            return function(*arguments, **named)
        finally:
            self.calling = before

    def found_profiler(self):
        """The script makes a profiler of its own, whose way must be free."""
        if self.calling or self.aside or (self.trace is not None and self.profiler is None):
            return
        self.aside = True
        ours, self.profiler = self.profiler, None
        if ours is not None:
            self.call(ours.stop)
        sys.stderr.write("headroom: the script uses a profiler of its own; recording steps aside\n")
        sys.stderr.flush()

    def synchronize(self):
        import torch

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def after_step(self, optimizer):
        if self.optimizer is None:
            self.optimizer = id(optimizer)
        if id(optimizer) != self.optimizer or self.error is not None:
            return
        self.steps += 1
        if self.aside and self.trace is None:
            return
        if self.trace is not None:
            self.time_a_step()
        elif self.profiler is not None:
            self.call(self.profiler.step)
        else:
            self.warmup_times.extend(self.interval())
            if self.steps >= WARMUP:
                self.last = None
                self.start()

    def start(self):
        import torch.profiler as profiler

        self.profiler = self.call(
            profiler.profile,
            schedule=profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1),
            on_trace_ready=self.save,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
            with_flops=True,
        )
        self.call(self.profiler.start)

    def save(self, profiler):
        if self.aside:
            return
        rank = os.environ.get("RANK", "0")
        path = os.path.join(FOLDER, f"rank{rank}.{os.getpid()}.pt.trace.json")
        profiler.export_chrome_trace(path)
        self.trace = path

    def time_a_step(self):
        """The steps after the trace, without the profiler."""
        if self.profiler is not None:
            self.call(self.profiler.stop)
            self.profiler = None
        if len(self.times) >= STEPS:
            return
        self.times.extend(self.interval())
        if len(self.times) >= STEPS:
            self.note()
            if STOP:
                sys.stderr.write("headroom: recorded; ending the script\n")
                sys.stderr.flush()
                raise SystemExit(0)

    def interval(self):
        """The time since the last call, if there was one."""
        self.synchronize()
        before, self.last = self.last, time.perf_counter()
        return [] if before is None else [self.last - before]

    def note(self):
        """What happened, for the command that started the script."""
        content = {
            "steps": self.steps,
            "trace": self.trace,
            # A script that ends with the trace still had its warm-up, whose first steps are not typical.
            "seconds_without_profiler": self.times or self.warmup_times[1:],
            "error": self.error,
            "own_profiler": self.aside,
        }
        name = os.path.join(NOTES, f"record.{os.getpid()}.json")
        with open(name + ".tmp", "w") as file:
            json.dump(content, file)
        os.replace(name + ".tmp", name)

    def at_exit(self):
        try:
            if self.profiler is not None and self.trace is None:
                # The script ended first: what was recorded so far is kept.
                self.call(self.profiler.stop)
        except Exception as error:  # noqa: BLE001
            self.error = repr(error)
        if self.optimizer is not None or "torch" in sys.modules:
            self.note()


RECORDER = Recorder()


def watch(module):
    """Called when torch's optimizers are loaded."""
    import atexit

    def hook(optimizer, *unused):
        try:
            RECORDER.after_step(optimizer)
        except Exception as error:  # noqa: BLE001
            RECORDER.error = repr(error)
            sys.stderr.write(f"headroom: recording failed: {error!r}\n")

    module.register_optimizer_step_post_hook(hook)
    atexit.register(RECORDER.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=RECORDER.reset)


def watch_profilers(module):
    """Called when a module with profilers is loaded: tells when the script makes one."""
    for name in ("profile", "_KinetoProfile", "emit_nvtx", "emit_itt"):
        made = getattr(module, name, None)
        if isinstance(made, type) and "__init__" in vars(made):
            tell(made)


def tell(profiler):
    original = profiler.__init__

    @functools.wraps(original)
    def init(self, *arguments, **named):
        try:
            if named.get("enabled", True) is not False and arguments[:1] != (False,):
                RECORDER.found_profiler()
        except Exception as error:  # noqa: BLE001
            RECORDER.error = repr(error)
        original(self, *arguments, **named)

    profiler.__init__ = init


WATCHED = {
    "torch.optim.optimizer": watch,
    "torch.profiler.profiler": watch_profilers,
    "torch.autograd.profiler": watch_profilers,
}


class Loader(importlib.abc.Loader):
    def __init__(self, loader, loaded):
        self.loader = loader
        self.loaded = loaded

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        try:
            self.loaded(module)
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(f"headroom: cannot watch {module.__name__}: {error!r}\n")

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        loaded = WATCHED.pop(name, None)
        if loaded is None:
            return None
        # The name is not watched any more, so that this finds the module itself.
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, loaded)
        return spec


if FOLDER:
    sys.meta_path.insert(0, Finder())
run_the_next_sitecustomize()
