#!/usr/bin/env python3
"""Draws by lot the scripts that are searched, from the list of docs/benchmarks/optimize-draw.tsv.

    python3 bench/draw_scripts.py

Five of those that are not tuned and one of those that are; of these six, two that are searched twice and three that are searched for nine
minutes. The seed is the first eight hexadecimal digits of the list's SHA-256, so whoever changes the list changes the draw.
"""
import csv
import hashlib
import random
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "optimize-draw.tsv"


def read(file=LIST):
    with file.open(encoding="utf8", newline="") as opened:
        return list(csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE))


def main():
    digits = hashlib.sha256(LIST.read_bytes()).hexdigest()[:8]
    lots = random.Random(int(digits, 16))
    rows = read()
    tuned = [row["name"] for row in rows if row["tuned"] == "tuned"]
    others = [row["name"] for row in rows if row["tuned"] != "tuned"]
    drawn = lots.sample(others, 5) + lots.sample(tuned, 1)
    print(f"{len(rows)} scripts, {len(tuned)} of them tuned; seed {digits}")
    print("drawn:", ", ".join(drawn))
    print("searched twice:", ", ".join(lots.sample(drawn, 2)))
    print("searched for nine minutes:", ", ".join(lots.sample(drawn, 3)))


if __name__ == "__main__":
    main()
