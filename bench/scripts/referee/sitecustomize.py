"""The race's own clock, started by the interpreter before a script: times steps, then records device activity alone.

It shares nothing with the hook of `headroom record`, which is what it judges.
"""
import importlib.abc
import importlib.util
import json
import os
import sys
import time

OUT = os.environ.get("RACE_OUT")
WARMUP = int(os.environ.get("RACE_WARMUP", "12"))
TIMED = int(os.environ.get("RACE_TIMED", "30"))
DEVICE = os.environ.get("RACE_DEVICE") == "1"
DEVICE_STEPS = 5


class Referee:
    def __init__(self):
        self.marks = []
        self.first = None
        self.steps = 0
        self.profiler = None
        self.result = {}

    def after_step(self, optimizer, *unused):
        import torch

        # A script with several optimizers takes one step per round of the first.
        if self.first is None:
            self.first = optimizer
        if optimizer is not self.first:
            return
        self.steps += 1
        has_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        if self.profiler is not None:
            self.after_profiled_step(torch)
            return
        if self.steps < WARMUP:
            return
        event = torch.cuda.Event(enable_timing=True) if has_gpu else None
        if has_gpu:
            event.record()
        self.marks.append((time.perf_counter(), event))
        if len(self.marks) <= TIMED:
            return
        if has_gpu:
            torch.cuda.synchronize()
            events = [event for _, event in self.marks]
            seconds = [before.elapsed_time(after) / 1e3 for before, after in zip(events, events[1:])]
        else:
            seconds = [after[0] - before[0] for before, after in zip(self.marks, self.marks[1:])]
        self.result["seconds"] = seconds
        if DEVICE and has_gpu:
            self.left = DEVICE_STEPS + 1
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self.profiler.__enter__()
            torch.cuda._sleep(1000)
        else:
            self.end()

    def after_profiled_step(self, torch):
        # A kernel of a name of its own marks the end of each step on the device.
        torch.cuda._sleep(1000)
        self.left -= 1
        if self.left > 0:
            return
        torch.cuda.synchronize()
        self.profiler.__exit__(None, None, None)
        path = OUT + ".device.json"
        self.profiler.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        os.remove(path)
        device = {"kernel", "gpu_memcpy", "gpu_memset"}
        spans = [event for event in events if event.get("ph") == "X" and event.get("cat") in device]
        marks = sorted((span for span in spans if "spin_kernel" in span["name"]), key=lambda span: span["ts"])
        work = sorted((span["ts"], span["ts"] + span["dur"]) for span in spans if "spin_kernel" not in span["name"])
        # The first step carries the profiler's start.
        start, end = marks[1]["ts"] + marks[1]["dur"], marks[-1]["ts"]
        busy, reached = 0.0, start
        for begin, finish in work:
            begin, finish = max(begin, reached), min(finish, end)
            if finish > begin:
                busy += finish - begin
                reached = finish
        self.result["device_alone"] = {
            "steps": len(marks) - 2,
            "busy_seconds": busy / 1e6 / (len(marks) - 2),
            "wall_seconds": (end - start) / 1e6 / (len(marks) - 2),
        }
        self.end()

    def end(self):
        with open(OUT, "w") as file:
            json.dump(self.result, file)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


REFEREE = Referee()


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.done = False

    def find_spec(self, name, path, target=None):
        if name != "torch.optim.optimizer" or self.done:
            return None
        self.done = True
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module.register_optimizer_step_post_hook(REFEREE.after_step)

        spec.loader.exec_module = exec_module
        return spec


if OUT:
    sys.meta_path.insert(0, Finder())
