#!/usr/bin/env python3
"""Does training in eight bits reach the loss of half precision? The same steps in both, over several seeds.

    python3 bench/losses.py --headroom target/dist/headroom --text sources.txt --out docs/benchmarks

A run's final loss is the mean of its last 100 steps: both precisions see the same batches, so that noise of single batches
cancels. The figure is the mean over seeds of fp8's loss over bf16's, less one, with its 95% interval (Student's t).
Writes fp8-losses.json and fp8-losses.md; an earlier fp8-losses.json in the folder is added to, so that a run may do a part.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time

LAST = 100
ALLOWED_PERCENT = 1.0
# The rate falls to zero: at a constant rate the last steps of two runs differ by percents in any precision.
RECIPE = ["--lr-schedule", "cosine", "--lr-warmup-steps", "100", "--clip", "1"]
# Two-sided 95% quantiles of Student's t by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def started(headroom, size, data, precision, seed, steps, home):
    folder = tempfile.mkdtemp(dir=home)
    command = [headroom, "train", "--device", "cuda", "--size", size, "--passes", "all", "--precision", precision, "--data", data,
               "--seed", str(seed), "--num-steps", str(steps), "--log-interval", "200", "--json", *RECIPE, "--output-dir", os.path.join(folder, "run")]
    log = open(os.path.join(folder, "steps"), "w+")
    return subprocess.Popen(command, stdout=log, stderr=subprocess.DEVNULL, cwd=folder), log


def final_loss(process, log):
    if process.wait() != 0:
        raise RuntimeError(f"a run ended with exit code {process.returncode}")
    log.seek(0)
    losses = []
    for line in log:
        event = json.loads(line) if line.startswith('{"step"') else {}
        # Lines about a loss that left its course have a step, too.
        if "loss" in event:
            losses.append(event["loss"])
    return {"final": statistics.fmean(losses[-LAST:]), "last": losses[-1], "first": losses[0], "steps": len(losses)}


def interval(values):
    """Mean and half of its 95% interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, STUDENT.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))


def answer(mean, half):
    """Does the mean hold the limit, and does the whole interval?"""
    if mean > ALLOWED_PERCENT:
        return "MISSED"
    return "holds" if half is not None and mean + half <= ALLOWED_PERCENT else "the mean holds, the interval does not"


def rows(runs):
    """One row per size and data: fp8 over bf16, paired by seed."""
    found = {}
    for run in runs:
        found.setdefault((run["size"], run["data"]), {}).setdefault(run["seed"], {})[run["precision"]] = run
    out = []
    for (size, data), seeds in found.items():
        pairs = {seed: pair for seed, pair in sorted(seeds.items()) if len(pair) == 2}
        if not pairs:
            continue
        percent = {seed: 100 * (pair["fp8"]["final"] / pair["bf16"]["final"] - 1) for seed, pair in pairs.items()}
        mean, half = interval(list(percent.values()))
        out.append({"size": size, "data": data, "steps": next(iter(pairs.values()))["fp8"]["steps"], "percent_by_seed": percent,
                    "mean_percent": mean, "half_interval_percent": half, "allowed_percent": ALLOWED_PERCENT,
                    "answer": answer(mean, half),
                    "bf16": {seed: pair["bf16"]["final"] for seed, pair in pairs.items()},
                    "fp8": {seed: pair["fp8"]["final"] for seed, pair in pairs.items()}})
    return out


def markdown(result):
    lines = ["# FP8 against bf16: losses", "",
             f"{result['gpu']}; {result['date']}; by `bench/losses.py`. `train {' '.join(['--passes all', *result['recipe']])}`, both precisions on the same batches; a final loss is the "
             f"mean of the last {LAST} steps; percent by which fp8's is above bf16's. Text: bytes, {result['text_bytes']} of them.", "",
             "| size | data | steps | bf16, by seed | fp8, by seed | fp8 above bf16, by seed | mean over seeds, 95% | allowed |",
             "|---|---|---|---|---|---|---|---|"]
    for row in result["rows"]:
        listed = lambda values, form: ", ".join(form.format(value) for value in values.values())
        half = "" if row["half_interval_percent"] is None else f" ± {row['half_interval_percent']:.2f}"
        lines.append(f"| {row['size']} | {row['data']} | {row['steps']} | {listed(row['bf16'], '{:.4f}')} | {listed(row['fp8'], '{:.4f}')} "
                     f"| {listed(row['percent_by_seed'], '{:+.2f}%')} | {row['mean_percent']:+.2f}{half} % "
                     f"| {row['allowed_percent']}%: {row['answer']} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", default="target/dist/headroom")
    parser.add_argument("--text", required=True)
    parser.add_argument("--runs", default="small:markov,small:text,medium:text,medium:markov", help="size:data, in this order")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--at-a-time", type=int, default=2, help="runs that share the GPU")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run is started after so many")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    headroom, text = os.path.abspath(options.headroom), os.path.abspath(options.text)
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    os.makedirs(options.out, exist_ok=True)
    kept = os.path.join(options.out, "fp8-losses.json")
    runs = []
    if os.path.exists(kept):
        with open(kept) as file:
            runs = json.load(file)["runs"]
    wanted = [(size, data, seed, precision) for size, data in (run.split(":") for run in options.runs.split(","))
              for seed in map(int, options.seeds.split(",")) for precision in ("bf16", "fp8")]
    began, waiting = time.monotonic(), []

    def write():
        result = {"gpu": gpu, "date": time.strftime("%Y-%m-%d", time.gmtime()), "recipe": RECIPE, "text_bytes": os.path.getsize(text), "runs": runs, "rows": rows(runs)}
        with open(kept, "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
        with open(os.path.join(options.out, "fp8-losses.md"), "w") as file:
            file.write(markdown(result))

    def collect():
        (size, data, seed, precision), process, log = waiting.pop(0)
        run = {"size": size, "data": data, "seed": seed, "precision": precision, **final_loss(process, log)}
        runs.append(run)
        print(f"{time.monotonic() - began:6.1f} s  {size} {data} seed {seed} {precision}: {run['final']:.4f} (last {run['last']:.4f})", flush=True)
        write()

    with tempfile.TemporaryDirectory() as home:
        for size, data, seed, precision in wanted:
            if any((run["size"], run["data"], run["seed"], run["precision"]) == (size, data, seed, precision) for run in runs):
                continue
            if time.monotonic() - began > options.seconds:
                break
            if len(waiting) == options.at_a_time:
                collect()
            source = text if data == "text" else data
            waiting.append(((size, data, seed, precision), *started(headroom, size, source, precision, seed, options.steps, home)))
        while waiting:
            collect()
    write()
    print(open(os.path.join(options.out, "fp8-losses.md")).read())


if __name__ == "__main__":
    main()
