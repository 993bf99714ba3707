#!/usr/bin/env python3
"""Headroom against PyTorch on one GPU: both kept warm, taking turns, medians with their spread.

    python3 bench/cuda.py --headroom target/release/headroom --out docs/benchmarks

Needs only the release binary and a python3 with PyTorch. Each side in its best precision and precision by precision, and
Version 1 against Version 1. Writes cuda.json and cuda.md. A ratio is PyTorch's time over ours, from the same round.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

# size, our variant, PyTorch's variant, least ratio wanted (none where it is only told)
RACES = [
    ("tiny", "all-bf16", "graphs-tf32", 2.5),
    ("tiny", "all-bf16", "graphs-bf16", 2.5),
    ("tiny", "all-tf32", "graphs-tf32", 1.0),
    ("tiny", "all-fp32", "graphs-fp32", 1.0),
    ("tiny", "v1-fp32", "v1-fp32", None),
    ("small", "all-bf16", "graphs-bf16", 1.5),
    ("small", "all-tf32", "graphs-tf32", 1.0),
    ("small", "all-fp32", "graphs-fp32", 1.0),
    ("small", "v1-fp32", "v1-fp32", None),
    ("medium", "all-bf16", "graphs-bf16", 1.05),
    ("large", "all-bf16", "compile-bf16", 1.0),
]
STANDINGS = [
    ("tiny", "all-bf16", 50), ("small", "all-bf16", 50), ("medium", "all-bf16", 20), ("large", "all-bf16", 8),
    ("very_large", "all-bf16-pure", 6),
]
STEPS = {"tiny": 50, "small": 50, "medium": 20, "large": 8}


class Side:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, size, variant, steps):
        self.process.stdin.write(f"{size} {variant} {steps}\n")
        self.process.stdin.flush()
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


def race(ours, theirs, size, mine, peer, least, rounds):
    steps = STEPS[size]
    ours.ask(size, mine, 24)
    theirs.ask(size, peer, 4)
    times, ratios = ([], []), []
    for _ in range(rounds):
        a, b = ours.ask(size, mine, steps), theirs.ask(size, peer, steps)
        times[0].append(a["ms_per_step"])
        times[1].append(b["ms_per_step"])
        ratios.append(b["ms_per_step"] / a["ms_per_step"])
    low, high = interval(ratios)
    return {
        "size": size, "headroom": mine, "pytorch": peer, "rounds": rounds, "steps_a_round": steps,
        "headroom_ms": round(statistics.median(times[0]), 4), "pytorch_ms": round(statistics.median(times[1]), 4),
        "headroom_spread": [round(min(times[0]), 4), round(max(times[0]), 4)],
        "pytorch_spread": [round(min(times[1]), 4), round(max(times[1]), 4)],
        "ratio": round(statistics.median(ratios), 3), "ratio_low": round(low, 3), "ratio_high": round(high, 3),
        "wanted": least, "reached": least is None or statistics.median(ratios) >= least,
        "headroom_mb": round(a["peak_mb"]), "pytorch_mb": round(b["peak_mb"]),
    }


def standing(headroom, ours, size, variant, peaks, steps):
    """How far our best is from the larger of the two floors, and what our own profile names as the next thing in the way."""
    ours.ask(size, variant, 24 if size != "very_large" else 4)
    answer = ours.ask(size, variant, steps)
    ours.close()
    passes, precision = variant.split("-", 1)
    peak = peaks[precision.replace("-pure", "")]
    compute, memory = answer["model_flops"] / peak * 1e3, answer["plan_bytes"] / peaks["bytes"] * 1e3
    took = answer["ms_per_step"]
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
    named = ", ".join(f"{op['name']} ({100 * op['time'] / whole:.0f}% of the step, at {op['percent_of_roof']:.0f}% of its roof)" for op in lost[:3])
    return {
        "size": size, "variant": variant, "ms": round(took, 4), "mfu_percent": round(100 * compute / took, 1),
        "floor_flops_ms": round(compute, 4), "floor_bytes_ms": round(memory, 4),
        "times_the_floor": round(took / max(compute, memory), 2), "next": named, "mb": round(answer["peak_mb"]),
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
        "# CUDA: Headroom against PyTorch", "",
        f"{result['gpu']}, driver {result['driver']}; PyTorch {result['torch']}; {result['date']}. Both sides kept warm and "
        "asked in turns, every step waited for; medians of the rounds. A ratio is PyTorch's time over ours in the same round.", "",
        "| size | Headroom | ms | PyTorch | ms | ratio | rounds' spread | wanted | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["races"]:
        wanted = "" if row["wanted"] is None else f"{row['wanted']}× {'reached' if row['reached'] else 'missed'}"
        lines.append(
            f"| {row['size']} | {row['headroom']} | {row['headroom_ms']} | {row['pytorch']} | {row['pytorch_ms']} "
            f"| **{row['ratio']}×** | {row['ratio_low']} to {row['ratio_high']} | {wanted} "
            f"| {row['headroom_mb']} / {row['pytorch_mb']} |")
    if result["standings"]:
        peaks = result["peaks"]
        lines += [
            "", "## How far from the floor", "",
            f"The larger of two floors: the FLOPs that the model needs over the measured rate of large products "
            f"(bf16 {peaks['bf16'] / 1e12:.0f} TFLOP/s), and the bytes that the plan's calls move at least over the measured "
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
    parser.add_argument("--headroom", default="target/release/headroom")
    parser.add_argument("--peer", default=os.path.join(here, "torch_llama.py"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="sizes, separated by commas")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    import torch
    ours = Side([options.headroom, "race", "--device", "cuda"])
    theirs = Side([sys.executable, options.peer, "--device", "cuda", "--serve"])
    result = {
        "gpu": gpu, "driver": driver, "torch": torch.__version__, "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "races": [], "standings": [], "peaks": measured_peaks(options.headroom),
    }
    for size, mine, peer, least in RACES:
        if options.only and size not in options.only.split(","):
            continue
        row = race(ours, theirs, size, mine, peer, least, options.rounds)
        result["races"].append(row)
        print(f"{size:7} {mine:10} {row['headroom_ms']:9.3f} ms  {peer:12} {row['pytorch_ms']:9.3f} ms  {row['ratio']:.2f}x "
              f"({row['ratio_low']:.2f} to {row['ratio_high']:.2f})  {row['headroom_mb']} / {row['pytorch_mb']} MB", flush=True)
    theirs.close()
    ours.close()
    write(options.out, result)
    for size, variant, steps in STANDINGS:
        if options.only and size not in options.only.split(","):
            continue
        # One at a time: the largest needs the device for itself.
        alone = Side([options.headroom, "race", "--device", "cuda"])
        row = standing(options.headroom, alone, size, variant, result["peaks"], steps)
        result["standings"].append(row)
        print(f"{size:10} {variant:13} {row['ms']:9.3f} ms  MFU {row['mfu_percent']}%  {row['times_the_floor']} times its floor; "
              f"next: {row['next']}", flush=True)
    write(options.out, result)
    missed = [row for row in result["races"] if not row["reached"]]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
