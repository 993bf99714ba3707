"""Does the README's first command hold on a busy machine? It is run many times, half of them beside a busy loop.

Run `python3 bench/first_command.py --headroom target/release/headroom --runs 20 --into FOLDER`. Every second run has a
process beside it that keeps one core busy and rests at random (0.2 to 3 s each, from the seed). Each run leaves its
validation.json in the folder, so an interrupted series goes on where it was. At the end every list that was recommended
takes turns with Version 1, Version 2 and all passes in one long race of short processes with nothing else running: models
of one process keep the place in memory that they got, and with it some percent of speed. A process beside which other
programs took more than 3% of the machine is run again, at most four times; the counters alone decide, not its times.

The answer: runs that recommended a proven list, runs whose list is within 3% of the best one of the long race, and the
median time of a run.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

BUSY = """
import random, sys, time
draw = random.Random(int(sys.argv[1]))
while True:
    until = time.perf_counter() + draw.uniform(0.2, 3)
    while time.perf_counter() < until:
        pass
    time.sleep(draw.uniform(0.2, 3))
"""
NEAR = 1.03
# The most that other programs may take of the machine beside a process of the long race, and how often it is run again.
DISTURBED = 0.03
MOST_AGAIN = 4
# The setting of the README's first command, and the steps of one process of the long race.
SETTING = ["--size", "tiny", "--batch-size", "8", "--seq-len", "128"]
STEPS = 24


def run(headroom, place, index):
    is_busy = index % 2 == 1
    place.mkdir(parents=True, exist_ok=True)
    beside = subprocess.Popen([sys.executable, "-c", BUSY, str(index)]) if is_busy else None
    begin = time.perf_counter()
    try:
        command = [headroom, "optimize", "--output-dir", "answer"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    finally:
        if beside:
            beside.kill()
            beside.wait()
    seconds = time.perf_counter() - begin
    (place / "printed.txt").write_text(done.stdout + done.stderr)
    record = {"busy": is_busy, "seconds": seconds, "code": done.returncode}
    (place / "run.json").write_text(json.dumps(record))


def answer(place):
    record = json.loads((place / "run.json").read_text())
    found = json.loads((place / "answer/validation.json").read_text())
    (kept,) = [row for row in found["versions"] if row["name"] == "kept"]
    record["list"] = found["kept_flag"] if found["kept"] else None
    record["speedup"] = [kept["measured_speedup"], kept["measured_ci95_low"], kept["measured_ci95_high"]] if found["kept"] else None
    return record


def busy_seconds():
    """Processor seconds that all programs, or the hypervisor, have taken from this machine."""
    user, nice, system, _, _, interrupts, soft, steal = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")


def disturbance(command, folder):
    """Runs a command; the share of the machine that others took meanwhile."""
    before, own, begin = busy_seconds(), os.times(), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    now, seconds = os.times(), time.perf_counter() - begin
    ours = now.children_user + now.children_system - own.children_user - own.children_system
    return (busy_seconds() - before - ours) / seconds / os.cpu_count()


def long_race(headroom, folder, lists, rounds):
    """Seconds per step of every list: the median over its processes of the fastest tenth of their steps."""
    names = list(dict.fromkeys(["v1", "v2", "all", *lists]))
    fastest = {name: [] for name in names}
    draw = random.Random(len(names))
    for _ in range(rounds):
        draw.shuffle(names)
        for name in names:
            command = [headroom, "train", *SETTING, "--passes", name, "--num-steps", str(STEPS), "--output-dir", "race", "--overwrite"]
            again = 0
            while disturbance(command, folder) > DISTURBED and again < MOST_AGAIN:
                again += 1
            summary = json.loads((folder / "race/performance_summary.json").read_text())
            fastest[name].append(summary["statistics"]["p10"])
    (folder / "race.json").write_text(json.dumps(fastest))
    return {name: statistics.median(seconds) for name, seconds in fastest.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", required=True, type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--into", required=True, type=Path)
    parser.add_argument("--race-rounds", type=int, default=14)
    options = parser.parse_args()
    headroom, folder = options.headroom.resolve(), options.into.resolve()
    answers = []
    for index in range(options.runs):
        place = folder / f"run-{index:02}"
        if not (place / "run.json").exists():
            run(headroom, place, index)
        answers.append(one := answer(place))
        speed = "{:.2f}x ({:.2f} to {:.2f})".format(*one["speedup"]) if one["speedup"] else ""
        told = f"{index:2} {'busy ' if one['busy'] else 'quiet'} {one['seconds']:4.0f} s  {one['list'] or 'nothing'}  {speed}"
        print(told, flush=True)
    recommended = [one["list"] for one in answers if one["list"]]
    seconds = long_race(headroom, folder, recommended, options.race_rounds)
    best = min(seconds.values())
    for name, value in sorted(seconds.items(), key=lambda item: item[1]):
        print(f"{1e3 * value:8.1f} ms  {value / best:.3f} of the best  {name}")
    near = sum(seconds[name] <= NEAR * best for name in recommended)
    print(f"{len(recommended)} of {len(answers)} recommended a proven list; {near} of them within 3% of the best one")
    print(f"median {statistics.median(one['seconds'] for one in answers):.0f} s per run")


if __name__ == "__main__":
    main()
