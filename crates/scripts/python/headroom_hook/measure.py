"""Measures a script from outside: step times, losses, samples, memory. Also applies remedies.

Protocol. The command that starts the script sets variables, and reads one JSON note per process when the script has ended.

Variables (only the first is needed to measure; without it, HEADROOM_REMEDIES alone applies remedies and leaves no note):
  HEADROOM_MEASURE_NOTES            existing folder for notes: `measure.PID.json`, renamed into place when complete
  HEADROOM_MEASURE_WARMUP           steps before timing [3]; more are taken while something is still being compiled, and until
                                    batches that a loader's workers had prefetched are used up
  HEADROOM_MEASURE_MOST_WARMUP      the most warm-up steps [4 x WARMUP + 8]
  HEADROOM_MEASURE_TIMED            steps to time [8]; at least twice the workers of a loader; 0 times none and never
                                    ends the script
  HEADROOM_MEASURE_SECONDS          more steps are timed until they take this long together, up to 10 x TIMED [0]
  HEADROOM_MEASURE_STOP             1: the script ends after the last timed step, with the note written: at once, or with
                                    SystemExit(0) if it is one of several ranks;
                                    if it continues to step, the process is ended at once
  HEADROOM_MEASURE_SEED             seeds random, numpy and torch before the script can; the script's own seeds win
  HEADROOM_MEASURE_BATCHES          batches per loader to digest during the warm-up [8]
  HEADROOM_MEASURE_REREAD           1: a proof, which is not timed: batches that workers deliver are read again and
                                    compared (`rereading.py`), and every batch is digested
  HEADROOM_MEASURE_CUT              in a proof: epochs are cut short, the first after this many steps, later ones after
                                    half as many [0: never]; evaluation after half as many batches
  HEADROOM_MEASURE_SHIFT_LOADING    seed offset for the random numbers of loading alone [0: unchanged]
  HEADROOM_MEASURE_MOVE_WEIGHTS     relative size of a random perturbation of the weights in every step (`moved.py`)
  HEADROOM_MEASURE_MOVE_NUMBER      seed of that perturbation [1]
  HEADROOM_MEASURE_OTHER_DROPOUT    seed offset for the random numbers of dropout alone [0: unchanged]
  HEADROOM_MEASURE_FALLBACK_RANDOM  1: compiled code draws random numbers as uncompiled code does
  HEADROOM_BYTECODE                 folder for bytecode if the installed torch has none
  HEADROOM_SCRATCH                  folder of this process; where it holds a copy of the working folder, links that lead
                                    out of it are not written
  HEADROOM_REMEDIES                 names in order, separated by commas, each with an optional value: `tf32,loader-workers=4`
  HEADROOM_REMEDIES_OFFER           1: the note also says for every remedy whether it applies (`offered`)
In any case trackers are set offline, and browsers and windows are disabled (`surroundings.py`).

Note (times in seconds, memory in bytes; unknown and non-finite values are null):
  schema_version 1, pid, parent_pid, argv, kind ("main", "child" of multiprocessing, "forked"), rank, world_size
  steps               steps of the loop seen in this process
  phase               "warm-up", "timed" or "done"
  measured_on         "device" (events) or "host" (clock)
  step_seconds        one per timed step
  warmup_steps        steps taken before timing began
  seconds_to_first_step, warmup_seconds   from the interpreter's start to the first mark; from there to the first timed step
  loader_wait_seconds time in DataLoader's `__next__` per timed step
  made_ahead          {taken, used_up}: batches of the timed steps, and how many of them came from a queue that workers did not
                      refill; null if unknown. With steady loading a step takes taken / (taken - used_up) as long
  making_seconds      time that workers need for the batches of a step, from those they were seen making in the first
                      epoch; null without workers. It bounds the step if an epoch is too short for made_ahead
  compile             null, or {seconds, seconds_in_timed, graphs, graph_breaks, recompiles, failures}
  losses              per step a list, one value per backward call, from the first step on; unscaled
  finite              whether all of them are; null without any
  gradients           of the first and the third step: norms, one per parameter of the optimizers in their order; null: none
  samples             per step: samples that loaders returned, or null without a loader
  epoch_ends          steps that had been taken when the loader of the training ended an epoch
  loaders             per DataLoader iterated: class, dataset, batch_size, workers, persistent, prefetch, pinned, iterable,
                      sampler, epochs, batches, samples, digests (one text per batch: "shape:dtype:crc32 ..."), on_device,
                      draws_random (loading in the script's own process draws random numbers), reread (null unless
                      workers were asked for evidence): {batches, samples, different, partly (samples compared in part),
                      unread (batches), why, example, fields (sentences: what differs between workers and script)}
  modules             trained modules that the loop calls, as they were before their first call: class, parameters, trained,
                      bytes, device, dtypes, training, dropouts (active ones), convolutions, multihead_attentions,
                      weights_unused (attentions whose weights are computed and dropped), attention (of transformers' config),
                      compiled (by now), repeated_blocks, distributed, channels_last, autocast, inputs (shapes)
  optimizers          those that took a step: class, parameters, has_fused, fused, has_foreach, foreach, capturable, device,
                      bytes
  settings            tf32, cudnn_benchmark, cudnn_deterministic, threads, interop_threads, deterministic, fallback_random
  machine             device ("cuda" or "cpu"), device_name, capability, devices, cores, torch, python, platform
  peak_bytes, peak_reserved_bytes, device_bytes, peak_resident_bytes   the first three of the device
  seeds_itself        whether the script, or a framework for it, called torch.manual_seed
  seed                the seed given, or null
  entropy             the script's own draws from the system: {what, count, file, line, code}
  seeds               seeds that the script's own files set: {what, value, file, line, code}
  scaled              losses were scaled by a GradScaler (and are unscaled here)
  autocasts           types that torch.autocast was entered with during the first step
  fills_gradients     `zero_grad` is asked for zeros rather than None
  own_cuda_graph, own_profiler
  places              where a patch is written, in files under the working folder or next to the main script; null if
                      unknown. A place is {file (relative if under the folder), line, end_line, end_column (of the call,
                      in bytes; null before Python 3.11), function, direct (made by that frame, not a library below)}.
                      main: file; loaders, optimizers: per entry of `loaders` and `optimizers` {class, place or null};
                      distributed, arguments: per DistributedDataParallel and TrainingArguments made {class, place};
                      modules: per entry of `modules` {class, place (of the optimizer's construction), expression (null:
                      not known there), wraps (the expression is what it wraps), frameworks: [{kind, expression}],
                      blocks: [[suffixes of the expression that run over repeated blocks]], eager: [suffixes of models to
                      switch to SDPA], attentions: [places of calls whose weights are unused]};
                      zeros, copies: places that asked zero_grad for zeros, and of copies made non-blocking
  exception           "Class: message" of the exception that ended the script, or null
  problems            list of {code, text}: why it is not or only partly measured. Codes: no-optimizer, no-step,
                      ended-early, no-loss, no-module, own-profiler
  remedies            per remedy asked for: {class, did: [sentences], nothing: text or null, errors: [texts]}
  offered             per remedy: {class, obstacle: null if it applies, else why not}; only with HEADROOM_REMEDIES_OFFER
  error               what failed inside the hook, or null

`progress.PID.json` ({pid, steps, phase, seconds}) is written after the first step, when the warm-up ends and every two
seconds, for a script that has to be ended before it writes a note.

A script has one process that counts, or one per rank: those with the most steps. Others (launchers, spawned loader
workers, compilers) write notes without steps, or none.
"""
import math
import os
import sys
import time

BEGAN = time.perf_counter()
NOTES = os.environ.get("HEADROOM_MEASURE_NOTES")
WARMUP = int(os.environ.get("HEADROOM_MEASURE_WARMUP", "3"))
MOST_WARMUP = int(os.environ.get("HEADROOM_MEASURE_MOST_WARMUP", str(4 * WARMUP + 8)))
TIMED = int(os.environ.get("HEADROOM_MEASURE_TIMED", "8"))
# More steps are timed until they take this many seconds together, up to MOST_TIMES as many steps.
SECONDS = float(os.environ.get("HEADROOM_MEASURE_SECONDS", "0"))
MOST_TIMES = 10
STOP = os.environ.get("HEADROOM_MEASURE_STOP") == "1"
BATCHES = int(os.environ.get("HEADROOM_MEASURE_BATCHES", "8"))
FALLBACK_RANDOM = os.environ.get("HEADROOM_MEASURE_FALLBACK_RANDOM") == "1"
OFFER = os.environ.get("HEADROOM_REMEDIES_OFFER") == "1"


# Seconds after which progress is written again.
SECONDS_BETWEEN = 2.0
# The most seconds that a warm-up waits for prefetched batches to be used up.
MOST_DRAINING = 10.0
# Steps, counted from 0, whose gradients are recorded.
GRADIENT_STEPS = (0, 2)


class Meter:
    """The measurement of one process, advanced by marks."""

    name = "measuring"

    def __init__(self, moments, losses, batches, sources):
        self.moments, self.losses, self.batches, self.sources = moments, losses, batches, sources
        self.kind = "main"
        self.clear()

    @property
    def is_measuring(self):
        """Whether a recording in the same process has to wait."""
        return TIMED > 0 and self.phase != "done" and self.error is None

    def clear(self):
        self.error = None
        self.steps = 0
        self.gradients = []
        self.phase = "warm-up"
        self.steps_in_phase = 0
        self.timed = []
        # Optimizers, kept alive while steps are timed: the note names them even if the script ends first.
        self.stepping = []
        self.step_seconds = []
        self.measured_on = None
        self.first_mark = None
        self.told = 0.0
        self.warmup_end = None
        self.warmup_steps = 0
        self.compiled_before = 0.0
        self.compile_at_timed = 0.0
        self.compile_in_timed = 0.0
        self.own_profiler = False
        self.own_cuda_graph = False
        self.asked_to_end = False
        self.exception = None
        self.facts = None

    def reset(self):
        """Called in a forked process: its parent's measurement is not its own."""
        # Kept: device memory must not be freed from here.
        self.inherited = (self.timed, self.losses.steps, self.losses.current)
        self.kind = "forked"
        self.clear()
        self.losses.clear()
        self.batches.clear()

    def found_profiler(self):
        self.own_profiler = True

    def step(self, is_mark, is_changed):
        if self.asked_to_end and is_mark:
            # The script caught SystemExit and continues. The note is written, so nothing is lost.
            sys.stderr.flush()
            sys.stdout.flush()
            os._exit(0)
        if self.error is not None or self.phase == "done":
            return
        if is_changed and self.phase == "timed":
            # The steps timed so far were parts of a step: the next mark is where timing begins.
            self.timed, self.steps_in_phase = [], -1
        if is_mark:
            self.mark()

    def mark(self):
        self.steps += 1
        self.steps_in_phase += 1
        self.own_cuda_graph = SHARED.LOOP.captured
        if self.first_mark is None:
            self.first_mark = time.perf_counter()
            self.progress()
        elif time.perf_counter() - self.told > SECONDS_BETWEEN:
            # Such steps are so long that a file takes no share of them.
            self.progress()
        self.losses.end_step()
        if self.phase == "timed":
            self.take_time()
            self.batches.end_step(is_timed=self.steps_in_phase > 0)
            if self.has_enough():
                # Only the losses up to here are compared, however many steps are timed.
                self.losses.is_collecting = False
                is_long = time.perf_counter() - self.timed[0][0] >= SECONDS
                if is_long or self.steps_in_phase >= MOST_TIMES * TIMED:
                    self.finish()
            return
        self.batches.end_step(is_timed=False)
        is_compiling = self.is_compiling()
        is_warm = self.steps_in_phase >= WARMUP and not is_compiling
        has_ahead = time.perf_counter() - self.first_mark < MOST_DRAINING and self.batches.has_ahead(TIMED)
        if TIMED > 0 and (is_warm or self.steps_in_phase >= max(MOST_WARMUP, WARMUP)) and not has_ahead:
            self.phase, self.warmup_steps, self.steps_in_phase = "timed", self.steps, 0
            self.stepping = self.moments.live_optimizers()
            self.compile_at_timed = compile_seconds()
            self.batches.is_digesting = self.batches.is_proof
            self.progress()
            self.warmup_end = time.perf_counter()
            self.take_time()

    def has_enough(self):
        """Workers deliver batches in bursts, so at least two rounds are timed."""
        return self.steps_in_phase >= max(TIMED, 2 * self.batches.workers())

    def before_step(self, optimizer, *unused):
        """Records gradient norms of some early steps, on the device: a layer without a backward pass shows at once."""
        if self.phase == "warm-up" and self.steps in GRADIENT_STEPS and self.error is None and not SHARED.is_capturing():
            SHARED.guarded(self.keep_gradients, optimizer, listener=self)

    def keep_gradients(self, optimizer):
        import torch

        while len(self.gradients) <= GRADIENT_STEPS.index(self.steps):
            self.gradients.append([])
        scale = getattr(optimizer, "grad_scale", None)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None or gradient.is_sparse or hasattr(gradient, "full_tensor"):
                    self.gradients[-1].append(None)
                    continue
                norm = torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32)
                self.gradients[-1].append(norm if scale is None else norm / scale.to(norm.device))

    def is_compiling(self):
        """Whether the last step compiled something, so that the next may do so again."""
        before, self.compiled_before = self.compiled_before, compile_seconds()
        return self.compiled_before > before

    def take_time(self):
        """Records the time without a wait: the device reports later when it reached this mark."""
        if not self.timed:
            self.batches.restart_timing()
        self.timed.append((time.perf_counter(), SHARED.device_event()))

    def read_times(self):
        self.step_seconds, self.measured_on = SHARED.seconds_between(self.timed)
        self.timed = []

    def finish(self):
        self.read_times()
        self.compile_in_timed = compile_seconds() - self.compile_at_timed
        self.phase = "done"
        self.losses.is_collecting = False
        if NOTES:
            self.note()
        self.stepping = []
        if STOP:
            self.asked_to_end = True
            sys.stderr.write("headroom: measured; ending the script\n")
            sys.stderr.flush()
            if not SHARED.is_one_of_ranks():
                SHARED.leave_at_once()
            raise SystemExit(0)

    def progress(self):
        """Writes how far the script got, in case it is ended before it writes a note."""
        self.told = time.perf_counter()
        if NOTES:
            content = {"pid": os.getpid(), "steps": self.steps, "phase": self.phase, "seconds": time.perf_counter() - BEGAN}
            SHARED.write_note(os.path.join(NOTES, f"progress.{os.getpid()}.json"), content)

    def at_exit(self):
        if self.phase == "timed" and len(self.timed) > 1:
            self.read_times()
            self.compile_in_timed = compile_seconds() - self.compile_at_timed
            if self.has_enough():
                self.phase = "done"
        if NOTES and (self.steps or ("torch" in sys.modules and self.kind != "forked")):
            self.note()

    def problems(self):
        found = []
        if not self.steps:
            if not self.moments.optimizers_made:
                text = "the process makes no optimizer of torch.optim, and changes no weights after a backward pass"
                found.append(("no-optimizer", text))
            else:
                found.append(("no-step", "an optimizer is made but never takes a step"))
            return found
        if TIMED > 0 and self.phase != "done":
            needed = WARMUP + TIMED
            found.append(("ended-early", f"the script took {self.steps} steps, and {needed} are needed"))
        if not self.losses.seen:
            found.append(("no-loss", "no backward call was seen: gradients come from elsewhere"))
        if not self.moments.roots:
            found.append(("no-module", "no trained module is called as a function"))
        if self.own_profiler:
            found.append(("own-profiler", "the script profiles itself, so its steps are slower than without a profiler"))
        return found

    def content(self):
        facts = SHARED.part("facts")
        losses = self.losses.read()
        values = [value for step in losses for value in step]
        modules = [facts.of_module(root) for root in self.moments.roots]
        compiled = compile_facts()
        if compiled is not None:
            compiled["seconds_in_timed"] = self.compile_in_timed
        begun = self.first_mark
        return {
            "schema_version": 1,
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "argv": sys.argv,
            "kind": self.process_kind(),
            "rank": number(os.environ.get("RANK")),
            "world_size": number(os.environ.get("WORLD_SIZE")),
            "steps": self.steps,
            "phase": self.phase,
            "measured_on": self.measured_on,
            "step_seconds": self.step_seconds,
            "warmup_steps": self.warmup_steps,
            "seconds_to_first_step": None if begun is None else begun - BEGAN,
            "warmup_seconds": None if self.warmup_end is None else self.warmup_end - begun,
            "loader_wait_seconds": self.batches.waits,
            "made_ahead": self.batches.used_up(),
            "making_seconds": self.batches.making_seconds(),
            "compile": compiled,
            "losses": losses,
            "gradients": [gradients_read(step) for step in self.gradients],
            "finite": all(math.isfinite(value) for value in values) if values else None,
            "samples": self.batches.samples if self.batches.loaders else None,
            "epoch_ends": self.batches.epoch_ends,
            "loaders": self.batches.facts(),
            "modules": modules,
            "optimizers": [facts.of_optimizer(one) for one in self.moments.live_optimizers()],
            "settings": facts.of_settings(),
            "machine": facts.of_machine(),
            **facts.of_memory(),
            "seeds_itself": self.sources.seeds_itself,
            "seed": number(os.environ.get("HEADROOM_MEASURE_SEED")),
            **self.sources.facts(),
            "scaled": self.losses.is_scaled,
            "autocasts": sorted(self.moments.autocasts),
            "fills_gradients": self.moments.fills_gradients,
            "own_cuda_graph": self.own_cuda_graph,
            "own_profiler": self.own_profiler,
            "places": facts.attempt(self.moments.places.content) if self.moments.places else None,
            "exception": self.exception,
            "problems": [{"code": code, "text": text} for code, text in self.problems()],
            "remedies": self.moments.outcomes(),
            "error": self.error,
        }

    def process_kind(self):
        if self.kind == "main" and "multiprocessing.process" in sys.modules:
            import multiprocessing

            return "child" if multiprocessing.parent_process() is not None else "main"
        return self.kind

    def note(self):
        if self.facts is None or self.facts["phase"] != "done":
            self.facts = self.content()
            if OFFER and self.steps:
                self.facts["offered"] = self.moments.offered(self.facts)
        # Everything that may have changed since the last timed step.
        self.facts.update(
            exception=self.exception, error=self.error, remedies=self.moments.outcomes(), steps=self.steps
        )
        SHARED.write_note(os.path.join(NOTES, f"measure.{os.getpid()}.json"), finite(self.facts))


def compile_seconds():
    """Time spent compiling so far; 0 if nothing was compiled."""
    utils = sys.modules.get("torch._dynamo.utils")
    times = getattr(utils, "cumulative_time_spent_ns", None) or {}
    return (times.get("entire_frame_compile", 0) + times.get("entire_backward_compile", 0)) / 1e9


def compile_facts():
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    if not counters or not counters["frames"].get("total"):
        return None
    frames = counters["frames"]
    # Stays unknown (null) if this PyTorch does not count them.
    recompiles = None
    try:
        metrics = utils.get_compilation_metrics()
        recompiles = sum(1 for metric in metrics if getattr(metric, "recompile_reason", None))
    except Exception:  # noqa: BLE001
        pass
    return {
        "seconds": compile_seconds(),
        "graphs": counters["stats"].get("unique_graphs", 0),
        "graph_breaks": sum(counters["graph_break"].values()),
        "recompiles": recompiles,
        "failures": frames["total"] - frames.get("ok", 0),
    }


def finite(value):
    """The same value, with null for every number that JSON cannot represent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


def gradients_read(norms):
    """Reads the norms in one copy if they are on one device."""
    import torch

    found = [norm for norm in norms if norm is not None]
    values = iter(torch.stack(found).tolist() if len({norm.device for norm in found}) == 1 else map(float, found))
    return [None if norm is None else next(values) for norm in norms]


def number(text):
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def watch_exceptions(meter):
    """Records the exception that ended the script."""
    original = sys.excepthook

    def hook(kind, value, traceback):
        meter.exception = f"{kind.__name__}: {value}"[:2000]
        original(kind, value, traceback)

    sys.excepthook = hook


def begin():
    SHARED.part("surroundings").make_quiet()
    moments = SHARED.part("moments").Moments()
    # Remedies first: their changes are inside, and the measurement sees what the script sees.
    moments.install(os.environ.get("HEADROOM_REMEDIES", ""))
    if not NOTES:
        return moments.watch()
    losses = SHARED.part("losses").Losses()
    batches = SHARED.part("batches").Batches(BATCHES)
    sources = SHARED.part("sources").Sources()
    meter = Meter(moments, losses, batches, sources)
    SHARED.part("places").Places(moments, batches).watch()
    # Remedies that act at a mark do so before its time is taken.
    moments.watch()
    SHARED.part("moved").watch(moments, meter)
    SHARED.LOOP.listeners.append(meter)
    SHARED.when_loaded(
        "torch.optim.optimizer", lambda module: module.register_optimizer_step_pre_hook(meter.before_step)
    )
    sources.begin()
    losses.watch()
    batches.watch()
    watch_exceptions(meter)
    if FALLBACK_RANDOM:
        SHARED.when_loaded("torch._inductor.config", lambda module: setattr(module, "fallback_random", True))
