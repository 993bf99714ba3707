#!/usr/bin/env python3
"""Headroom against PyTorch and JAX on one GPU: all sides kept warm, taking turns, medians with their spread.

    python3 bench/cuda.py --headroom target/dist/headroom --out docs/benchmarks

Needs only the release binary and a python3 with PyTorch; JAX is raced where it is installed. Each side in its best precision
and precision by precision, and Version 1 against Version 1. Writes cuda.json and cuda.md. A ratio is the peer's time over ours,
from the same round.
"""
import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

# size: our lists, the peers' ones, and what our best is wanted to be: so many times the best peer, so many milliseconds.
# A peer is named before its variant.
SIZES = {
    "tiny": (["all-bf16", "all-tf32", "all-fp32", "v1-fp32"],
             ["torch:graphs-bf16", "torch:graphs-tf32", "torch:graphs-fp32", "torch:v1-fp32", "jax:xla-bf16"], 3.0, None),
    "small": (["all-bf16", "all-tf32", "all-fp32", "v1-fp32"],
              ["torch:graphs-bf16", "torch:graphs-tf32", "torch:graphs-fp32", "torch:v1-fp32", "jax:xla-bf16"], 2.1, None),
    "medium": (["all-fp8", "all-bf16"], ["torch:graphs-bf16", "torch:compile-fp8", "jax:cudnn-bf16"], 1.25, None),
    "large": (["all-fp8", "all-bf16"], ["torch:compile-fp8", "torch:compile-bf16", "jax:cudnn-bf16"], 1.1, 92.0),
    "very_large": (["all-fp8-pure", "all-bf16-pure"], [], None, None),
}
# Pairs of the same kind, told beside the best: ours and the peer's.
ALIKE = {("all-tf32", "torch:graphs-tf32"), ("all-fp32", "torch:graphs-fp32"), ("v1-fp32", "torch:v1-fp32"),
         ("all-bf16", "torch:graphs-bf16"), ("all-bf16", "torch:compile-bf16"), ("all-fp8", "torch:compile-fp8"),
         ("all-bf16", "jax:xla-bf16"), ("all-bf16", "jax:cudnn-bf16")}
# Our eight bits against our own half precision.
OWN = {"large": ("all-fp8", "all-bf16", None), "medium": ("all-fp8", "all-bf16", None),
       "very_large": ("all-fp8-pure", "all-bf16-pure", 1.3)}
STANDINGS = [
    ("tiny", "all-bf16"), ("small", "all-bf16"), ("medium", "all-bf16"), ("medium", "all-fp8"),
    ("large", "all-bf16"), ("large", "all-fp8"), ("very_large", "all-bf16-pure"), ("very_large", "all-fp8-pure"),
]
STEPS = {"tiny": 50, "small": 50, "medium": 20, "large": 8, "very_large": 3}
# Warm-up steps of a side before its times count: ours tries ways to replay a step in its first ones.
WARM_STEPS, WARM_STEPS_LARGEST, WARM_STEPS_OF_A_PEER = 24, 18, 4
# Two of the largest do not fit beside each other, nor two peers beside ours: one after the other, both warm.
ONE_PEER_AT_A_TIME = {"large"}
ONE_AT_A_TIME = {"very_large"}


class Side:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, size, variant, steps):
        self.send(size, variant, steps)
        return self.answer(size, variant)

    def send(self, size, variant, steps):
        self.process.stdin.write(f"{size} {variant} {steps}\n")
        self.process.stdin.flush()

    def answer(self, size, variant):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the other side ended while asked for {size} {variant}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{size} {variant}: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def interval(values):
    """Middle 95% of the rounds' ratios, or all of them where there are few."""
    ordered = sorted(values)
    cut = int(len(ordered) * 0.025)
    return ordered[cut], ordered[len(ordered) - 1 - cut]


def is_ours(name):
    """Of this build or of the landed one: measures while it warms up."""
    return ":" not in name or name.startswith("landed:")


class Sides:
    """Our process and those of the peers, started when they are first asked."""

    def __init__(self, headroom, here, landed=None):
        self.commands = {
            "ours": [headroom, "race", "--device", "cuda"],
            "torch": [sys.executable, os.path.join(here, "torch_llama.py"), "--device", "cuda", "--serve"],
            "jax": [sys.executable, os.path.join(here, "jax_llama.py")],
        }
        if landed:
            self.commands["landed"] = [landed, "race", "--device", "cuda"]
        self.running = {}

    def has(self, name):
        return name != "jax" or importlib.util.find_spec("jax") is not None

    def landed(self, ours):
        """The same lists in another build, if one is raced."""
        return [f"landed:{name}" for name in ours] if "landed" in self.commands else []

    def of(self, name):
        """The process that runs it, and its variant."""
        side, _, variant = name.rpartition(":")
        side = side or "ours"
        if side not in self.running:
            self.running[side] = Side(self.commands[side])
        return self.running[side], variant

    def ask(self, name, size, steps):
        side, variant = self.of(name)
        return side.ask(size, variant, steps)

    def close(self, which=None):
        for side in [which] if which else list(self.running):
            if side in self.running:
                self.running.pop(side).close()


def rounds_of(sides, size, names, rounds):
    """Milliseconds of every one in every round, and what it needs; one that cannot run is left out, with its reason."""
    times, memory, failed, notes = {}, {}, {}, {}
    peers = [name for name in names if not is_ours(name)]
    # Peers compile side by side; ours, which measures while it warms up, has the device for itself.
    for name in peers:
        side, variant = sides.of(name)
        side.send(size, variant, WARM_STEPS_OF_A_PEER)
    for name in peers + [name for name in names if is_ours(name)]:
        side, variant = sides.of(name)
        try:
            if name not in peers:
                side.send(size, variant, WARM_STEPS_LARGEST if size in ONE_AT_A_TIME else WARM_STEPS)
            side.answer(size, variant)
            times[name] = []
        except RuntimeError as error:
            failed[name] = str(error)
            print(f"{size} {name}: {error}", flush=True)
    for _ in range(rounds):
        for name in times:
            answer = sides.ask(name, size, STEPS[size])
            times[name].append(answer["ms_per_step"])
            memory[name] = answer["peak_mb"]
            if ":" not in name:
                notes[name] = {key: answer[key] for key in ("model_flops", "plan_bytes", "notes")}
    return times, memory, failed, notes


def entered(size, only_best):
    """Our lists and the peers' variants; only those that may be the best of their side, where that is asked for."""
    ours, peers, _, _ = SIZES[size]
    is_in = lambda name: not only_best or name.rpartition("-")[2] not in ("tf32", "fp32")
    return list(filter(is_in, ours)), list(filter(is_in, peers))


def raced(sides, size, rounds, only_best):
    """All heats of a size: pairs of ours and a peer's that took turns in the same rounds."""
    (ours, peers), (_, _, wanted, most_ms) = entered(size, only_best), SIZES[size]
    peers = [peer for peer in peers if sides.has(peer.split(":")[0])] + sides.landed(ours)
    if size in ONE_AT_A_TIME:
        heats = []
        for name in ours + peers:
            heats.append(rounds_of(sides, size, [name], rounds))
            sides.close()
        heats = [tuple({name: value for heat in heats for name, value in heat[part].items()} for part in range(4))]
    elif size in ONE_PEER_AT_A_TIME:
        heats = []
        for peer in peers:
            heats.append(rounds_of(sides, size, ours + [peer], rounds))
            sides.close(peer.split(":")[0])
    else:
        heats = [rounds_of(sides, size, ours + peers, rounds)]
    median = {}
    for times, _, _, _ in heats:
        for name, values in times.items():
            median.setdefault(name, []).extend(values)
    median = {name: statistics.median(values) for name, values in median.items() if values}
    rows = []
    best_ours = min((name for name in median if ":" not in name), key=median.get)
    best_peer = min((name for name in median if not is_ours(name)), key=median.get, default=None)
    for times, memory, _, _ in heats:
        pairs = {(mine, peer) for mine in ours for peer in times if mine in times and ((mine, peer) in ALIKE or peer == f"landed:{mine}")}
        if best_peer in times and best_ours in times:
            pairs.add((best_ours, best_peer))
        if size in OWN and OWN[size][0] in times and OWN[size][1] in times and times is heats[0][0]:
            pairs.add(OWN[size][:2])
        for mine, peer in sorted(pairs):
            is_best, is_own = (mine, peer) == (best_ours, best_peer), ":" not in peer
            least = wanted if is_best else OWN[size][2] if is_own else None
            ratios = [theirs / own for own, theirs in zip(times[mine], times[peer])]
            low, high = interval(ratios)
            ratio, took = statistics.median(ratios), statistics.median(times[mine])
            reached = (least is None or ratio >= least) and (not is_best or most_ms is None or took <= most_ms)
            rows.append({
                "size": size, "headroom": mine, "peer": peer, "best": is_best, "rounds": rounds, "steps_a_round": STEPS[size],
                "headroom_ms": round(took, 4), "peer_ms": round(statistics.median(times[peer]), 4),
                "headroom_spread": [round(min(times[mine]), 4), round(max(times[mine]), 4)],
                "peer_spread": [round(min(times[peer]), 4), round(max(times[peer]), 4)],
                "ratio": round(ratio, 3), "ratio_low": round(low, 3), "ratio_high": round(high, 3),
                "wanted": least, "wanted_ms": most_ms if is_best else None, "reached": reached,
                "headroom_mb": round(memory[mine]), "peer_mb": round(memory[peer]),
            })
    own = {name: {**notes[name], "ms": median[name], "mb": memory[name]} for _, memory, _, notes in heats for name in notes}
    return rows, {name: why for _, _, failed, _ in heats for name, why in failed.items()}, own


def prepare(sides, sizes, only_best):
    """Every variant of every peer takes a step, a process each: a later race finds what was compiled."""
    started = []
    for size in sizes:
        for peer in [peer for peer in entered(size, only_best)[1] if sides.has(peer.split(":")[0])]:
            kind, _, variant = peer.rpartition(":")
            side = Side(sides.commands[kind])
            side.send(size, variant, 1)
            started.append((side, size, variant))
    for side, size, variant in started:
        try:
            side.answer(size, variant)
        except RuntimeError as error:
            print(error, flush=True)
        side.close()
    return 0


def next_in_the_way(headroom, size, variant):
    """The operators that lose most against their roofs, by our own profile."""
    passes, _, precision = variant.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        command = [headroom, "profile", "--device", "cuda", "--size", size, "--passes", passes, "--precision", precision,
                   "--num-steps", "12", "--output-dir", run]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        with open(os.path.join(run, "computational_intensity.json")) as file:
            ops = json.load(file)["by_op"]
    whole = sum(op["time"] for op in ops)
    # Time above the roof: what would be gained if an operator ran at it.
    lost = sorted(ops, key=lambda op: op["time"] * (1 - min(op["percent_of_roof"], 100) / 100), reverse=True)
    return ", ".join(f"{op['name']} ({100 * op['time'] / whole:.0f}% of the step, at {op['percent_of_roof']:.0f}% of its roof)" for op in lost[:3])


def standing(headroom, size, variant, peaks, answer, profiled):
    """How far a list of ours is from the larger of the two floors, and what our own profile names as the next thing in the way."""
    peak = peaks[variant.partition("-")[2].replace("-pure", "")]
    compute, memory = answer["model_flops"] / peak * 1e3, answer["plan_bytes"] / peaks["bytes"] * 1e3
    took = answer["ms"]
    named = next_in_the_way(headroom, size, variant) if profiled else "not profiled in this run"
    return {
        "size": size, "variant": variant, "ms": round(took, 4), "mfu_percent": round(100 * compute / took, 1),
        "floor_flops_ms": round(compute, 4), "floor_bytes_ms": round(memory, 4),
        "times_the_floor": round(took / max(compute, memory), 2), "next": named, "mb": round(answer["mb"]),
    }


def measured_peaks(headroom):
    """Of this device, as `headroom device` measures them."""
    command = [headroom, "device", "--device", "cuda", "--json"]
    record = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    peaks = {peak["precision"]: peak["flops_per_sec"] for peak in record["gemm_flops"]}
    peaks["bytes"] = record["memory_bandwidth_bytes"]
    return peaks


def markdown(result):
    lines = [
        "# CUDA: Headroom against PyTorch and JAX", "",
        f"{result['gpu']}, driver {result['driver']}; PyTorch {result['torch']}, JAX {result['jax']}; {result['date']}. All sides "
        "kept warm and asked in turns, every step waited for; medians of the rounds. A ratio is the peer's time over ours in the "
        "same rounds; the best of ours against the best of theirs is in bold.", "",
        "| size | Headroom | ms | peer | ms | ratio | rounds' spread | wanted | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["races"]:
        wants = [f"{row['wanted']}×"] if row["wanted"] else []
        wants += [f"{row['wanted_ms']} ms"] if row["wanted_ms"] else []
        wanted = f"{', '.join(wants)} {'reached' if row['reached'] else 'missed'}" if wants else ""
        ratio = f"**{row['ratio']}×**" if row["best"] else f"{row['ratio']}×"
        lines.append(
            f"| {row['size']} | {row['headroom']} | {row['headroom_ms']} | {row['peer']} | {row['peer_ms']} "
            f"| {ratio} | {row['ratio_low']} to {row['ratio_high']} | {wanted} | {row['headroom_mb']} / {row['peer_mb']} |")
    for name, why in result["left_out"].items():
        lines += ["", f"Left out: {name} ({why})."]
    if result["standings"]:
        peaks = result["peaks"]
        lines += [
            "", "## How far from the floor", "",
            f"The larger of two floors: the FLOPs that the model needs over the measured rate of large products "
            f"(bf16 {peaks['bf16'] / 1e12:.0f} TFLOP/s, e4m3 {peaks.get('fp8', 0) / 1e12:.0f}), and the bytes that the plan's calls move at least over the measured "
            f"bandwidth ({peaks['bytes'] / 1e12:.1f} TB/s).", "",
            "| size | list | ms | MFU | FLOPs' floor, ms | bytes' floor, ms | times the larger | memory, MB | next in the way, by our own profile |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for row in result["standings"]:
            lines.append(
                f"| {row['size']} | {row['variant']} | {row['ms']} | {row['mfu_percent']}% | {row['floor_flops_ms']} "
                f"| {row['floor_bytes_ms']} | {row['times_the_floor']} | {row['mb']} | {row['next']} |")
    return "\n".join(lines) + "\n"


def write(folder, result):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "cuda.json"), "w") as out:
        out.write(json.dumps(result, indent=1) + "\n")
    with open(os.path.join(folder, "cuda.md"), "w") as out:
        out.write(markdown(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--headroom", default="target/dist/headroom")
    parser.add_argument("--landed", help="another build of headroom, a side of the race")
    parser.add_argument("--no-peers", action="store_true", help="without PyTorch and JAX: one build against another")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="sizes, separated by commas")
    parser.add_argument("--only-best", action="store_true", help="without tf32, fp32 and Version 1, which are nobody's best")
    parser.add_argument("--prepare", action="store_true", help="have the peers compile, all at once, into caches on disk, and end")
    parser.add_argument("--profiled", default=",".join(SIZES), help="sizes of which a profile names what is next in the way")
    parser.add_argument("--no-standings", action="store_true", help="races alone, without the distance from the floors")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    # Profiles run in folders of their own.
    headroom = os.path.abspath(options.headroom)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), "jax-compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    asked = options.only.split(",") if options.only else list(SIZES)
    if options.no_peers:
        SIZES.update({size: (ours, [], None, None) for size, (ours, _, _, _) in SIZES.items()})
    if options.prepare:
        return prepare(Sides(headroom, here), asked, options.only_best)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    from importlib import metadata
    versions = {name: metadata.version(name) for name in ["torch", "jax"] if importlib.util.find_spec(name)}
    result = {
        "gpu": gpu, "driver": driver, "torch": versions.get("torch"), "jax": versions.get("jax"),
        "python": platform.python_version(), "date": time.strftime("%Y-%m-%d", time.gmtime()), "races": [], "left_out": {}, "replays": {},
        "standings": [], "peaks": measured_peaks(headroom),
    }
    own = {}
    for size in [size for size in SIZES if size in asked]:
        sides = Sides(headroom, here, options.landed and os.path.abspath(options.landed))
        rows, failed, own[size] = raced(sides, size, options.rounds, options.only_best)
        sides.close()
        result["replays"].update({f"{size} {name}": answer["notes"] for name, answer in own[size].items()})
        result["races"] += rows
        result["left_out"].update({f"{size} {name}": why for name, why in failed.items()})
        for row in rows:
            print(f"{size:10} {row['headroom']:13} {row['headroom_ms']:9.3f} ms  {row['peer']:19} {row['peer_ms']:9.3f} ms  "
                  f"{row['ratio']:.2f}x ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
                  f"{' best' if row['best'] else ''}  {row['headroom_mb']} / {row['peer_mb']} MB", flush=True)
        write(options.out, result)
    for size, variant in [] if options.no_standings else STANDINGS:
        if variant not in own.get(size, {}):
            continue
        row = standing(headroom, size, variant, result["peaks"], own[size][variant], size in options.profiled.split(","))
        result["standings"].append(row)
        print(f"{size:10} {variant:13} {row['ms']:9.3f} ms  MFU {row['mfu_percent']}%  {row['times_the_floor']} times its floor; "
              f"next: {row['next']}", flush=True)
        write(options.out, result)
    missed = [row for row in result["races"] if not row["reached"]]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
