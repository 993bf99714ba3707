"""Remedies as switches: on and off between the steps of one process.

A file in `remedies/` that can be switched has `on(context)`, which returns the function that switches it off and leaves
everything as it was. It may also have
  SETTLE    steps until its time is typical [1]
  EXCLUDES  names of remedies that cannot be on at the same time
  GUARDED   compiled code was compiled for one state of it [False]
  UNIT      relative size of one rounding [that of fp32]
  RANDOM    "same" random numbers as without it, "other" ones, or those of "compiled" code ["same"]
  ACTS_ON   "forward", "gradients" (how they are cleared) or "optimizer" ["forward"]
  follow(context)  of compiled code: another switch has changed while it is on
Every other remedy acts when the script starts, and is compared by fresh processes.

A block of steps counts only if nothing was compiled in it and nothing fell back to eager execution: `mark` at its start,
`void` at its end.
"""
import os
import sys

SINGLE = 6e-8


class NothingToSwitch(Exception):
    """Raised by `on`, which has changed nothing."""


class Switch:
    def __init__(self, remedy):
        self.remedy = remedy
        self.name = remedy.NAME
        self.kind = remedy.CLASS
        self.where = "between_steps" if hasattr(remedy, "on") else "start"
        self.settle = getattr(remedy, "SETTLE", 1)
        self.excludes = getattr(remedy, "EXCLUDES", ())
        self.is_guarded = getattr(remedy, "GUARDED", False)
        self.unit = getattr(remedy, "UNIT", SINGLE)
        self.random = getattr(remedy, "RANDOM", "same")
        # Its compiled graphs are counted as they run.
        self.counts_graphs = hasattr(remedy, "follow")
        self.acts_on = getattr(remedy, "ACTS_ON", "forward")

    def applies(self, context):
        """`None`, or why not."""
        for other in self.excludes:
            if other in context.active:
                return f"{other} is on"
        return self.remedy.applies(context.facts())

    def is_on(self, context):
        return self.name in context.active

    def on(self, context):
        """Raises `NothingToSwitch` if there is nothing to switch."""
        if self.where != "between_steps":
            raise ValueError(f"{self.name} acts when the script starts")
        if self.is_on(context):
            raise ValueError(f"{self.name} is on already")
        for other in self.excludes:
            if other in context.active:
                raise ValueError(f"{self.name} cannot be switched on while {other} is")
        context.active[self.name] = (self, None)
        try:
            context.active[self.name] = (self, self.remedy.on(context))
        except BaseException:
            del context.active[self.name]
            raise
        follow(context, self)

    def off(self, context):
        if not self.is_on(context):
            raise ValueError(f"{self.name} is not on")
        _, undo = context.active.pop(self.name)
        undo()
        follow(context, self)


def follow(context, changed):
    if changed.is_guarded:
        follow_all(context, changed)


def follow_all(context, but=None):
    for switch, _ in list(context.active.values()):
        if switch is not but and hasattr(switch.remedy, "follow"):
            switch.remedy.follow(context)


def table():
    """Every remedy by name."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "remedies")
    files = sorted(file[:-3] for file in os.listdir(folder) if file.endswith(".py"))
    found = [Switch(SHARED.part("remedies/" + file)) for file in files]
    return {switch.name: switch for switch in found}


def mark(context):
    """The state of compiled code at the start of a block, for `void`."""
    return {**compiled_so_far(), "graphs_run": context.graphs_run}


def void(context, begun, steps):
    """Why a block of `steps` steps since `begun` does not count, or `None`.

    "compiled ..." ends by itself once all sizes were seen: let it settle longer. "fell back ..." does not.
    """
    now = compiled_so_far()
    frames = now["frames"] - begun["frames"]
    if frames or now["seconds"] > begun["seconds"]:
        return f"compiled {frames} frames in the block" if frames else "compiled a backward pass in the block"
    if not any(switch.counts_graphs for switch, _ in context.active.values()):
        return None
    per_step = (context.graphs_run - begun["graphs_run"]) / max(steps, 1)
    most = context.graphs_per_step.get(context.combination(), 0)
    if per_step <= 0:
        return "fell back to eager execution: no compiled graph ran"
    if per_step < 0.9 * most:
        return f"fell back to eager execution: {per_step:.0f} compiled graphs ran per step, {most:.0f} before"
    context.graphs_per_step[context.combination()] = max(per_step, most)
    return None


def compiled_so_far():
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return {"frames": 0, "seconds": 0.0}
    return {"frames": utils.counters["frames"].get("total", 0), "seconds": SHARED.part("measure").compile_seconds()}
