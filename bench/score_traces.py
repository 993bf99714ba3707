"""Is the first finding of `headroom analyze` right? It is held against labels that were written from the events alone.

Run `python3 bench/score_traces.py --headroom target/release/headroom --traces FOLDER`. The folder holds the files that
docs/benchmarks/trace-labels.tsv lists (`--labels`: another list), fetched from their repositories, each named by its first
column (`.json` or `.json.gz`). The rules are those of docs/benchmarks/public-traces.md: a trace counts as right when its first finding is one
of the accepted ones; `none`: no finding above medium; `cold`: a finding or a note on trust says that the window holds a
cold start, and nothing above medium stands before it; `stalled`: TR130.
"""
import argparse
import csv
import json
import math
import subprocess
import sys
from pathlib import Path

LABELS = Path(__file__).parent.parent / "docs/benchmarks/trace-labels.tsv"
GRAVE = ("critical", "high")


def is_right(accepted, findings, notes):
    first = findings[0] if findings else {"code": "", "severity": ""}
    is_grave = any(finding["severity"] in GRAVE for finding in findings)
    is_cold = "cold start" in notes or first["code"] == "TR129"
    special = {"none": not is_grave, "cold": is_cold and first["severity"] not in GRAVE, "stalled": first["code"] == "TR130"}
    return special.get(accepted, first["code"] == accepted)


def wilson(right, count):
    if count == 0:
        return (0.0, 1.0)
    z, share = 1.96, right / count
    middle, width = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return tuple((middle + sign * width) / (1 + z * z / count) for sign in (-1, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", required=True)
    parser.add_argument("--traces", required=True, type=Path)
    parser.add_argument("--labels", default=LABELS, type=Path)
    options = parser.parse_args()
    with open(options.labels, encoding="utf-8") as file:
        rows = list(csv.DictReader((line for line in file if not line.startswith("#")), delimiter="\t", quoting=csv.QUOTE_NONE))
    counts, false, missing = {"yes": [], "no": []}, [], 0
    for row in rows:
        path = next((path for path in sorted(options.traces.glob(row["trace"] + ".*"))), None)
        if path is None:
            missing += 1
            continue
        done = subprocess.run([options.headroom, "analyze", str(path), "--json"], capture_output=True, text=True)
        answer = json.loads(done.stdout)
        findings, notes = answer["findings"], " ".join(answer["trust"]["notes"])
        right = any(is_right(accepted, findings, notes) for accepted in row["accepted"].split("|"))
        counts[row["device"]].append(right)
        forbidden = row["must_not"].split("|")
        false += [f"{row['trace']} {one['code']}" for one in findings if one["severity"] == "critical" and one["code"] in forbidden]
        told = ", ".join(f"{one['code']} {one['severity']}" for one in findings[:3])
        print(f"{'right' if right else 'WRONG'}  {row['trace']:<18} accepted {row['accepted']:<20} {told or 'nothing'}")
    groups = (("with device events", counts["yes"]), ("without", counts["no"]), ("all", counts["yes"] + counts["no"]))
    for name, of_group in groups:
        low, high = wilson(sum(of_group), len(of_group))
        print(f"{name}: {sum(of_group)} of {len(of_group)}, {100 * low:.0f} to {100 * high:.0f}%")
    print(f"false findings called critical: {', '.join(false) or 'none'}; files that are not there: {missing}")
    return 1 if missing == len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
