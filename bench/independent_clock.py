#!/usr/bin/env python3
"""Times a script and its patched copy in turns, without headroom's hook: what a patch is worth, by a clock that shares nothing with it.

    python3 bench/independent_clock.py --original FOLDER --patched FOLDER --between PATTERN FROM TO -- python3 train.py …
    python3 bench/independent_clock.py --original FOLDER --patched FOLDER --lengths SHORT LONG -- python3 train.py --steps {length}

`--between` reads what the script prints: PATTERN is a regular expression whose groups together say how many steps are done (see `--scale`),
and the time runs from the first line that says at least FROM to the first that says at least TO, where the process is ended. `--lengths`
runs the command to its end twice per turn, with {length} replaced, and divides the difference of the times by that of the lengths; start,
compiling and shutdown drop out. Either way each process is new, and original and patched alternate in balanced order, four of each.
"""
import argparse
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

# The 97.5% quantile of Student's t, by degrees of freedom.
STUDENT = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14]
SIDES = ("original", "patched")


def start(command, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM")}
    environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def end(process):
    """Ends the process and those that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def pieces(pipe):
    """Lines as they come; a carriage return ends one too, as progress bars write it. Each with the time at which it was read."""
    rest = b""
    while chunk := os.read(pipe.fileno(), 65536):
        now = time.perf_counter()
        *whole, rest = re.split(rb"[\r\n]", rest + chunk)
        for piece in whole:
            yield now, piece.decode(errors="replace")


def steps_of(found, scale):
    """The groups as digits of a number whose places count `scale`: an epoch of 100 batches and the batch make 100 × epoch + batch."""
    groups = [float(group) for group in found.groups()]
    return sum(group * weight for group, weight in zip(groups, scale))


def window(command, folder, between, scale, limit):
    """Seconds per step between two lines of the script's output."""
    pattern, first, last = between
    process = start(command, folder)
    timer = threading.Timer(limit, end, [process])
    timer.start()
    began, tail = None, []
    try:
        for now, piece in pieces(process.stdout):
            tail = [*tail[-15:], piece]
            found = pattern.search(piece)
            if not found:
                continue
            done = steps_of(found, scale)
            if began is None and done >= first:
                began = now, done
            elif began and done >= last:
                return (now - began[0]) / (done - began[1])
    finally:
        timer.cancel()
        end(process)
        process.stdout.close()
    sys.exit("\n".join(["the script ended, or was ended, before it had printed both steps:", *tail]))


def whole(command, folder, limit):
    began = time.perf_counter()
    process = start(command, folder)
    timer = threading.Timer(limit, end, [process])
    timer.start()
    try:
        output, _ = process.communicate()
    finally:
        timer.cancel()
        end(process)
    if process.returncode:
        sys.exit(f"ended with {process.returncode}:\n{output.decode(errors='replace')[-2000:]}")
    return time.perf_counter() - began


def lengths(command, folder, short, long, limit):
    """Seconds per step from two whole runs."""
    times = [whole([part.replace("{length}", str(length)) for part in command], folder, limit) for length in (short, long)]
    return (times[1] - times[0]) / (long - short)


def order(rounds):
    """Original and patched in turns, each as often first as second."""
    return [side for turn in range(rounds) for side in (SIDES if turn % 2 == 0 else SIDES[::-1])]


def compared(seconds):
    """The speed-up of the patch and its 95% interval, from the logarithms of the processes' step times (Welch)."""
    logs = {side: [math.log(each) for each in seconds[side]] for side in SIDES}
    gain = statistics.mean(logs["original"]) - statistics.mean(logs["patched"])
    parts = [statistics.variance(each) / len(each) for each in logs.values()]
    spread = sum(parts)
    if spread == 0:
        return math.exp(gain), math.exp(gain), math.exp(gain)
    freedom = spread**2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, logs.values()))
    reach = STUDENT[min(max(int(freedom), 1), len(STUDENT)) - 1] * math.sqrt(spread)
    return math.exp(gain), math.exp(gain - reach), math.exp(gain + reach)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", type=Path, required=True, help="the folder to start the unchanged script in")
    parser.add_argument("--patched", type=Path, required=True, help="the same folder of the patched copy")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--between", nargs=3, metavar=("PATTERN", "FROM", "TO"))
    way.add_argument("--lengths", nargs=2, type=int, metavar=("SHORT", "LONG"))
    parser.add_argument("--scale", nargs="+", type=float, default=[1.0], help="how many steps one of each group counts")
    parser.add_argument("--rounds", type=int, default=4, help="processes of each side")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a process is ended, and the clock gives up")
    parser.add_argument("--out", type=Path, help="a JSON file of all times")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command or arguments.rounds < 2:
        parser.error("a command after -- and two rounds or more are needed")
    if arguments.between:
        pattern, first, last = arguments.between
        between = re.compile(pattern), float(first), float(last)
        if between[0].groups != len(arguments.scale):
            parser.error(f"the pattern has {between[0].groups} groups and --scale {len(arguments.scale)} numbers")
    seconds = {side: [] for side in SIDES}
    for side in order(arguments.rounds):
        folder = getattr(arguments, side)
        if arguments.between:
            seconds[side].append(window(command, folder, between, arguments.scale, arguments.limit))
        else:
            seconds[side].append(lengths(command, folder, *arguments.lengths, arguments.limit))
        print(f"{side} {1e3 * seconds[side][-1]:.2f} ms", flush=True)
    gain, low, high = compared(seconds)
    middle = {side: 1e3 * statistics.median(seconds[side]) for side in SIDES}
    print(f"original {middle['original']:.2f} ms, patched {middle['patched']:.2f} ms: {gain:.2f}× ({low:.2f} to {high:.2f})")
    if arguments.out:
        result = {"command": command, "milliseconds": {side: [1e3 * each for each in seconds[side]] for side in SIDES}}
        arguments.out.write_text(json.dumps(result | {"speedup": gain, "interval": [low, high]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
