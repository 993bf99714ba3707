"""Seeds the random generators before the script can, and records what makes its runs differ all the same.

Two sources remain. Entropy of the system: `numpy.random.default_rng()`, `torch.seed()`, `random.SystemRandom`,
`os.urandom`. And seeds that the script computes, from the time or a process id: each is recorded with its value, and
values of two runs are compared afterwards. Calls count only if the script's own files make them; libraries draw names
of temporary files and keys of connections.
"""
import functools
import linecache
import os
import sys

SEED = os.environ.get("HEADROOM_MEASURE_SEED")
# Enough to name the cause.
MOST = 16
# Modules that pass a call on.
BETWEEN = ("random", "secrets", "uuid", "numpy.random", "functools", "torch._dynamo.eval_frame", "torch._compile")
HERE = os.path.dirname(os.path.abspath(__file__))


class Sources:
    def __init__(self):
        # Whether the script, or a framework for it, called torch.manual_seed.
        self.seeds_itself = False
        self.drawn = {}
        self.seeds = []

    def begin(self):
        import random

        rank = int(os.environ.get("RANK", "0"))
        if SEED is not None:
            random.seed(int(SEED) + rank)
        self.watch_system(random)
        SHARED.when_loaded("numpy.random", lambda module: self.watch_numpy(module, rank))
        SHARED.when_loaded("torch.random", self.watch_torch)
        if SEED is not None:
            SHARED.when_loaded("torch", lambda module: self.original(int(SEED) + rank))

    def watch_system(self, random):
        original = os.urandom

        @functools.wraps(original)
        def urandom(size):
            SHARED.guarded(self.drew, "the system's entropy", sys._getframe(1))
            return original(size)

        # The second is what SystemRandom, `secrets` and numpy's unseeded generators call.
        os.urandom = random._urandom = urandom
        seed = random.Random.seed

        @functools.wraps(seed)
        def seed_random(this, a=None, *arguments, **named):
            SHARED.guarded(self.seeded, "random.seed", a, sys._getframe(1))
            return seed(this, a, *arguments, **named)

        random.Random.seed = seed_random
        random.seed = random._inst.seed

    def watch_numpy(self, module, rank):
        if SEED is not None:
            module.seed(int(SEED) + rank)
        for name in ("seed", "default_rng"):
            setattr(module, name, self.watched(f"numpy.random.{name}", getattr(module, name)))

    def watched(self, what, original):
        @functools.wraps(original)
        def seeds(seed=None, *arguments, **named):
            if seed is not None:
                # Without a seed they ask the system for one.
                SHARED.guarded(self.seeded, what, seed, sys._getframe(1))
            return original(seed, *arguments, **named)

        return seeds

    def watch_torch(self, module):
        self.original = original = module.manual_seed
        own_seed = module.seed

        @functools.wraps(original)
        def manual_seed(seed):
            # Calls from torch itself, as in workers and compilers, are not the script's.
            caller = name_of_caller(sys._getframe(1))
            if caller != "torch" and not caller.startswith("torch."):
                self.seeds_itself = True
                SHARED.guarded(self.seeded, "torch.manual_seed", seed, sys._getframe(1))
            return original(seed)

        @functools.wraps(own_seed)
        def seed():
            SHARED.guarded(self.drew, "torch.seed", sys._getframe(1))
            return own_seed()

        # Hides the wrappers from compilers.
        manual_seed._torchdynamo_disable = seed._torchdynamo_disable = True
        module.manual_seed, module.seed = manual_seed, seed

    def drew(self, what, frame):
        place = own_place(frame)
        if place is not None and (place in self.drawn or len(self.drawn) < MOST):
            self.drawn.setdefault(place, {"what": what, "count": 0})["count"] += 1

    def seeded(self, what, value, frame):
        if value is None:
            return self.drew(what, frame)
        place = own_place(frame)
        if place is not None and len(self.seeds) < MOST:
            self.seeds.append({"what": what, "value": str(value)[:40], **described(place)})
        return None

    def facts(self):
        """The script's own draws from the system, and the seeds that it set."""
        return {
            "entropy": [{**one, **described(place)} for place, one in self.drawn.items()],
            "seeds": self.seeds,
        }


def own_place(frame):
    """File and line of the script's own call; `None` if a library made it."""
    places = SHARED.part("places")
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        is_passed_on = name in BETWEEN or name.startswith("numpy.random.") or os.path.dirname(file) == HERE
        if not is_passed_on:
            return (file, frame.f_lineno) if places.is_own(file) else None
        frame = frame.f_back
    return None


def described(place):
    file, line = place
    return {"file": SHARED.part("places").shown(file), "line": line, "code": linecache.getline(file, line).strip()[:120]}


def name_of_caller(frame):
    """The frame's module, skipping the wrapper that dynamo puts around the function once it is loaded."""
    while frame is not None and frame.f_globals.get("__name__") in ("torch._dynamo.eval_frame", "torch._compile"):
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")
