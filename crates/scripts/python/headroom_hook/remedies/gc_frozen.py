"""Excludes objects that live for the whole training from garbage collection, and scans young ones less often.

Nothing is switched off: cycles that a step leaves behind are still found, after at most some thousand new objects.
"""
import gc

NAME = "gc-frozen"
CLASS = "same"
YOUNG = 10_000
# After the first step nearly everything exists. Later marks would fall into timed steps.
MARKS = (1, 2)
# Newer interpreters begin with some frozen objects. A script that has frozen this share of all has done so itself.
OWN = 0.1


def applies(facts):
    return None


def install(hook):
    hook.nothing("no step was taken")
    hook.at_mark(lambda number: freeze(hook) if number in MARKS else None)


def freeze(hook):
    if not gc.isenabled():
        return hook.nothing("the script has switched garbage collection off")
    leave_lasting_objects_alone()
    hook.said("the garbage collector leaves lasting objects alone")
    return None


def on(context):
    if not gc.isenabled():
        raise SHARED.part("switches").NothingToSwitch("the script has switched garbage collection off")
    if gc.get_freeze_count() > OWN * len(gc.get_objects()):
        # They could not be told from ours afterwards.
        raise SHARED.part("switches").NothingToSwitch("the script has frozen objects itself")
    return leave_lasting_objects_alone()


def leave_lasting_objects_alone():
    """Returns the function that puts the collector back."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    first, *others = before
    if 0 < first < YOUNG:
        gc.set_threshold(YOUNG, *others)

    def off():
        gc.unfreeze()
        gc.set_threshold(*before)

    return off
