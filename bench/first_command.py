"""Does the README's first command hold on a busy machine? It is run many times, half of them beside a busy loop.

Run `python3 bench/first_command.py --headroom target/release/headroom --runs 20 --into FOLDER`. Every second run has a
process beside it that keeps one core busy and rests at random (0.2 to 3 s each, from the seed). Each run leaves its
validation.json in the folder, so an interrupted series goes on where it was. At the end every list that was recommended
takes turns with Version 1, Version 2 and all passes in one long race of `headroom study` with nothing else running.

The answer: runs that recommended a proven list, runs whose list is within 3% of the best one of the long race, and the
median time of a run.
"""
import argparse
import json
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


def run(headroom, folder, index, extra):
    is_busy = index % 2 == 1
    place = folder / f"run-{index:02}"
    place.mkdir(parents=True, exist_ok=True)
    beside = subprocess.Popen([sys.executable, "-c", BUSY, str(index)]) if is_busy else None
    begin = time.perf_counter()
    try:
        command = [headroom, "optimize", *extra, "--output-dir", "answer"]
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
    kept = next((row for row in found["versions"] + found["passes"] if row["kept"] and row["passes"] == found["kept"]), None)
    record["list"] = found["kept_flag"] if found["kept"] else ""
    record["row"] = kept
    return record


def long_race(headroom, folder, lists, steps):
    versions = ",".join(dict.fromkeys(["v1", "v2", "all", *(name.replace(",", "+") for name in lists)]))
    command = [headroom, "study", "tiny", "--versions", versions, "--num-steps", str(steps), "--output-dir", "race"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "race/study.json").read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", required=True, type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--into", required=True, type=Path)
    parser.add_argument("--race-steps", type=int, default=100)
    parser.add_argument("flags", nargs="*", help="flags of `headroom optimize`, after --")
    options = parser.parse_args()
    headroom, folder = options.headroom.resolve(), options.into.resolve()
    for index in range(options.runs):
        place = folder / f"run-{index:02}"
        if not (place / "run.json").exists():
            run(headroom, folder, index, options.flags)
        one = answer(place)
        print(f"{index:2} {'busy ' if one['busy'] else 'quiet'} {one['seconds']:5.0f} s  {one['list'] or 'nothing'}", flush=True)


if __name__ == "__main__":
    main()
