#!/usr/bin/env python3
"""Checks of several ranks on one GPU, through NCCL: a line for each, and what was seen.

    python3 bench/nccl.py --headroom target/dist/headroom --out results

Several ranks on one GPU are for correctness alone: each has an NCCL_HOSTID of its own and all of them speak over loopback, so that
no figure of speed means anything. Ranks are started with torchrun's variables; one check starts torchrun itself.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

ROUNDING = 1e-4
PORTS = itertools.count(29600, 20)
LOCK = threading.Lock()
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "WARN"}


class Failed(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Failed(text)


class Run:
    """Ranks of one run, their output in files."""

    def __init__(self, place, name, ranks, words, each=None, environment=None, command="train"):
        self.name, self.ranks, self.began = name, ranks, time.time()
        with LOCK:
            port = next(PORTS)
        self.folder = place.work / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes = []
        for rank in range(ranks):
            own = {**os.environ, **LOOPBACK}
            if ranks > 1:
                own |= {"TORCHELASTIC_RUN_ID": name, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                        "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_HOSTID": f"{name}-{rank}"}
            own_words, own_environment = (each or {}).get(rank, ([], {}))
            own |= (environment or {}) | own_environment
            own = {key: value for key, value in own.items() if value is not None}
            command_line = [*place.before.get(name, []), place.headroom, command, "--device", "cuda:0", "--overwrite", "--output-dir", str(self.folder / "run"),
                            *words, *own_words]
            if command == "train":
                command_line += ["--json", "--log-interval", "1"]
            out, err = open(self.folder / f"out{rank}", "w"), open(self.folder / f"err{rank}", "w")
            self.processes.append(subprocess.Popen(command_line, env=own, stdout=out, stderr=err, stdin=subprocess.DEVNULL))

    def text(self, rank, which="err"):
        return (self.folder / f"{which}{rank}").read_text(errors="replace")

    def ended(self, seconds):
        until = time.time() + seconds
        for process in self.processes:
            try:
                process.wait(max(0.1, until - time.time()))
            except subprocess.TimeoutExpired:
                self.kill()
                raise Failed(f"{self.name} still ran after {seconds} s: " + self.tail())
        return [process.returncode for process in self.processes]

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def tail(self):
        return " | ".join(f"{rank}: {self.text(rank).strip()[-300:]}" for rank in range(self.ranks))

    def done(self, seconds=90):
        codes = self.ended(seconds)
        need(not any(codes), f"{self.name} ended with {codes}: {self.tail()}")
        return self

    def objects(self):
        for line in self.text(0, "out").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                pass

    def curve(self):
        return [(line["loss"], line.get("gradient_norm")) for line in self.objects() if isinstance(line.get("step"), int) and "loss" in line]

    def peak(self):
        return next(line["summary"]["performance_summary"]["peak_memory_mb"] for line in self.objects() if "summary" in line)

    def wait_for_step(self, seconds):
        until = time.time() + seconds
        while time.time() < until:
            if self.curve():
                return
            need(self.processes[0].poll() is None, f"{self.name} ended before its first step: {self.tail()}")
            time.sleep(0.05)
        raise Failed(f"{self.name} took no step in {seconds} s: {self.tail()}")


def worst(one, other):
    need(one and len(one) == len(other), f"{len(one)} steps and {len(other)}")
    pairs = [(a, b) for x, y in zip(one, other) for a, b in zip(x, y) if a is not None and b is not None]
    return max(abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs)


class Place:
    def __init__(self, options):
        self.headroom = os.path.abspath(options.headroom)
        self.out = pathlib.Path(options.out)
        self.work = pathlib.Path(options.work)
        shutil.rmtree(self.work, ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True)
        self.before = {}

    def train(self, name, ranks, *words, **more):
        return Run(self, name, ranks, list(words), **more)

    def curve(self, size, steps, ranks, passes, precision="fp32"):
        words = ["--size", size, "--num-steps", str(steps), "--batch-size", str(8 // ranks), "--passes", passes, "--precision", precision, "--gradient-norm"]
        label = passes.replace(",", "_").replace("+", "")
        return self.train(f"{size}-{precision}-{ranks}-{label}", ranks, *words).done().curve()


def curves(size, steps):
    def check(place):
        alone = place.curve(size, steps, 1, "v2")
        told = []
        for passes in ["v2", "v2,+zero1"]:
            for ranks in [2, 4]:
                off = worst(alone, place.curve(size, steps, ranks, passes))
                told.append(f"{ranks} ranks {passes} {off:.1e}")
                need(off < ROUNDING, "; ".join(told))
        return f"largest relative difference from one rank: {'; '.join(told)}"
    return check


def half(place):
    """Copies in half precision follow the gathered weights: the curve of zero1 is that of dp."""
    alone = place.curve("nano", 12, 1, "v2", "bf16")
    two = {passes: place.curve("nano", 12, 2, passes, "bf16") for passes in ["v2", "v2,+zero1"]}
    off = {passes: worst(alone, curve) for passes, curve in two.items()}
    # Twelve steps on drawn tokens move the loss either way; copies that stood still would leave it where it was.
    need(alone[-1][0] != alone[0][0] and max(off.values()) < 2e-2, f"{off}, loss {alone[0][0]} to {alone[-1][0]}")
    return f"largest relative difference in bf16: {off}; loss {alone[0][0]:.4f} to {two['v2,+zero1'][-1][0]:.4f} under zero1"


def saved(place, name, passes):
    folder = place.work / f"{name}-saved"
    place.train(name, 2, "--size", "nano", "--num-steps", "8", "--batch-size", "4", "--passes", passes, "--save", str(folder)).done()
    return {file: (folder / file).read_bytes() for file in ["model.safetensors", "optimizer.safetensors"]}


def same_bytes(place):
    for passes in ["v2", "v2,+zero1"]:
        label = passes.replace(",+", "-")
        need(saved(place, f"first-{label}", passes) == saved(place, f"again-{label}", passes), f"two runs under {passes} have other bytes")
    return "model and optimizer of two runs, under v2 and under v2,+zero1"


def memory(place):
    peaks = {}
    for passes in ["v2", "v2,+zero1"]:
        words = ["--size", "small", "--num-steps", "1", "--batch-size", "1", "--seq-len", "32", "--passes", passes, "--precision", "fp32"]
        peaks[passes] = place.train("memory-" + passes.replace(",+", "-"), 2, *words).done().peak()
    weights = 20_890_112 * 4 / 2**20
    need(peaks["v2"] - peaks["v2,+zero1"] > weights / 2, f"{peaks} MiB, weights {weights:.0f} MiB")
    return f"{peaks} MiB per rank; weights are {weights:.0f} MiB, of which zero1 saves more than half"


def killed(place):
    run = place.train("killed", 2, "--size", "tiny", "--num-steps", "100000", "--rank-timeout", "10")
    run.wait_for_step(60)
    run.processes[1].send_signal(signal.SIGKILL)
    began = time.time()
    codes = run.ended(30)
    need(codes[0] not in (0, -9) and "rank 1 is gone" in run.text(0), f"{codes}: {run.tail()}")
    return f"rank 0 ended {time.time() - began:.1f} s later: {run.text(0).strip().splitlines()[-2][:120]}"


def hung(place):
    run = place.train("hung", 2, "--size", "tiny", "--num-steps", "100000", "--rank-timeout", "4")
    run.wait_for_step(60)
    run.processes[1].send_signal(signal.SIGSTOP)
    began = time.time()
    try:
        run.processes[0].wait(30)
        took = time.time() - began
        need(run.processes[0].returncode != 0 and "rank 1" in run.text(0), run.tail())
    except subprocess.TimeoutExpired:
        raise Failed(f"rank 0 outlived a hung rank: {run.tail()}")
    finally:
        run.kill()
    return f"rank 0 ended {took:.1f} s later: {run.text(0).strip().splitlines()[-2][:120]}"


def refused(name, words, each, wanted, environment=None):
    def check(place):
        run = place.train(name, 2, "--size", "nano", "--num-steps", "4", "--rank-timeout", "6", *words, each=each, environment=environment)
        codes = run.ended(40)
        told = [line for rank in range(2) for line in run.text(rank).splitlines() if wanted in line]
        need(told and all(codes), f"{codes}: {run.tail()}")
        return told[0][:160]
    return check


def torchrun(place):
    with LOCK:
        port = next(PORTS)
    script = 'export NCCL_HOSTID=t-$RANK; exec "$0" "$@"'
    words = [place.headroom, "train", "--device", "cuda:0", "--size", "nano", "--num-steps", "6", "--batch-size", "4", "--json", "--log-interval", "1",
             "--passes", "v2", "--precision", "fp32", "--gradient-norm", "--overwrite", "--output-dir", str(place.work / "torchrun")]
    command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2", "--master-port", str(port), "sh", "-c", script, *words]
    done = subprocess.run(command, env={**os.environ, **LOOPBACK}, capture_output=True, text=True, timeout=90)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    losses = [line["loss"] for line in lines if isinstance(line.get("step"), int) and "loss" in line]
    need(done.returncode == 0 and len(losses) == 6, f"{done.returncode}: {done.stderr[-600:]}")
    return f"6 steps of 2 ranks, loss {losses[0]:.4f} to {losses[-1]:.4f}"


def concurrency(events):
    """Microseconds of NCCL's kernels, of all others, and those in which one of each runs."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    wire = [(e["ts"], e["ts"] + e["dur"]) for e in kernels if "nccl" in e["name"].lower()]
    others = sorted((e["ts"], e["ts"] + e["dur"]) for e in kernels if "nccl" not in e["name"].lower())
    both = 0.0
    for start, end in wire:
        at = start
        for low, high in others:
            if high > at and low < end:
                both += max(0.0, min(high, end) - max(low, at))
                at = max(at, min(high, end))
    return sum(end - start for start, end in wire), sum(end - start for start, end in others), both


def profile(place):
    told, beside = [], {}
    for passes in ["v2", "v2,-overlap"]:
        name = "profile-" + passes.replace(",-", "-no-")
        words = ["--size", "small", "--batch-size", "32", "--precision", "bf16", "--passes", passes, "--num-steps", "22", "--profile-steps", "3"]
        run = place.train(name, 2, *words, command="profile").done(100)
        files = sorted((run.folder / "run").glob("*.pt.trace.json"))
        need(len(files) == 2, f"{len(files)} traces: {run.tail()}")
        traces = [json.loads(file.read_text()) for file in files]
        ranks = sorted(trace["distributedInfo"]["rank"] for trace in traces)
        need(ranks == [0, 1] and all(trace["distributedInfo"]["world_size"] == 2 for trace in traces), f"ranks {ranks}")
        with_sizes = [e for trace in traces for e in trace["traceEvents"] if "In msg nelems" in e.get("args", {})]
        wire, others, both = map(sum, zip(*(concurrency(trace["traceEvents"]) for trace in traces)))
        beside[passes] = both / max(others, 1e-9)
        told.append(f"{passes}: {len(with_sizes)} messages, {100 * beside[passes]:.1f}% of {others / 1e3:.1f} ms of other kernels beside NCCL's {wire / 1e3:.0f} ms")
        need(with_sizes, told[-1])
        analyzed = subprocess.run([place.headroom, "analyze", str(run.folder / "run")], capture_output=True, text=True, timeout=60)
        (place.out / f"{name}.analyze.txt").write_text(analyzed.stdout + analyzed.stderr)
        need(analyzed.returncode == 0 and "rank" in analyzed.stdout, f"analyze ended with {analyzed.returncode}: {analyzed.stderr[-300:]}")
    need(beside["v2"] > 0.05 and beside["v2"] > 5 * beside["v2,-overlap"], "; ".join(told))
    return "; ".join(told)


def sanitizer(place):
    tool = shutil.which("compute-sanitizer") or next(iter(map(str, pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))), None)
    if tool is None:
        return "skipped: there is no compute-sanitizer here"
    place.before["sanitizer"] = [tool, "--tool", "memcheck", "--error-exitcode", "9", "--report-api-errors", "no"]
    run = place.train("sanitizer", 2, "--size", "nano", "--num-steps", "2", "--batch-size", "2", "--passes", "v2,+zero1", "--rank-timeout", "60")
    codes = run.ended(100)
    lines = [line for rank in range(2) for line in (run.text(rank) + run.text(rank, "out")).splitlines() if line.startswith("=====")]
    told = [line for line in lines if "ERROR SUMMARY" in line]
    need(codes == [0, 0] and len(told) == 2 and all(" 0 errors" in line for line in told), f"{codes} " + " / ".join(lines[:40]))
    return "; ".join(told)


NO_LIBRARY = {"HEADROOM_NCCL_LIBRARY": "/nowhere/libnccl.so.2"}
CHECKS = [
    ("nano learns the same on 1, 2 and 4 ranks", curves("nano", 12)),
    ("two ranks under torchrun --no-python", torchrun),
    ("tiny learns the same on 1, 2 and 4 ranks", curves("tiny", 4)),
    ("bf16 learns the same under dp and zero1", half),
    ("the same bytes twice", same_bytes),
    ("zero1 saves the memory that was planned", memory),
    ("a killed rank ends all with its name", killed),
    ("a hung rank ends all with its name", hung),
    ("a rank with other flags is refused", refused("flags", ["--seed", "1"], {1: (["--learning-rate", "0.5"], {})}, "was not started as rank 0 was")),
    ("a rank of another job is refused", refused("job", [], {1: ([], {"TORCHELASTIC_RUN_ID": "another"})}, "it belongs to job `another`, and rank 0 to job `job`")),
    ("a rank without the library is named", refused("library", [], {1: ([], NO_LIBRARY)}, "rank 1 cannot take part: /nowhere/libnccl.so.2 cannot be opened")),
    ("two ranks on one GPU are told", refused("same", [], {}, "ranks 0 and 1 are both on GPU", {"NCCL_HOSTID": None})),
    ("a profile leaves a trace per rank, with overlap", profile),
    ("compute-sanitizer finds nothing", sanitizer),
]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--headroom", required=True)
    options.add_argument("--out", required=True)
    options.add_argument("--work", default="nccl-work")
    options.add_argument("--at-once", type=int, default=3)
    options.add_argument("--only", default="")
    options = options.parse_args()
    place = Place(options)
    began = time.time()
    # Kernels are compiled and products measured once, before several runs want them.
    for size, precision in [("nano", "fp32"), ("small", "bf16")]:
        try:
            place.train(f"first-{size}", 1, "--size", size, "--num-steps", "2", "--passes", "v2", "--precision", precision).done(60)
        except Failed as why:
            print(f"FAILED one rank alone: {why}", flush=True)
    print(f"set up in {time.time() - began:.0f} s", flush=True)

    def tried(check):
        name, work = check
        start = time.time()
        try:
            outcome, told = "passed", work(place)
        except Exception as error:
            outcome, told = "FAILED", f"{type(error).__name__}: {error}"
        print(f"{outcome} in {time.time() - start:.1f} s: {name}: {told}", flush=True)
        return outcome == "passed"

    wanted = [check for check in CHECKS if options.only in check[0]]
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        passed = list(pool.map(tried, wanted))
    with open(place.out / "logs.txt", "w") as logs:
        for file in sorted(place.work.glob("*/err*")):
            logs.write(f"== {file.parent.name}/{file.name}\n{file.read_text(errors='replace')[-1500:]}\n")
    print(f"{sum(passed)} of {len(passed)} checks passed in {time.time() - began:.0f} s")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
