"""Holistic Trace Analysis loads the trace and agrees with our operator times."""
import json
import sys
from pathlib import Path

from headroom_runs import compare_operators, only, profile_nano
from hta.trace_analysis import TraceAnalysis

# It rounds start and duration down to whole microseconds.
TOLERANCE_MICROSECONDS = 2.0


def main(binary, folder):
    run, ours = profile_nano(binary, Path(folder))
    path = only(run, "*.pt.trace.json")
    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(run))
    table = analysis.t.get_trace(0)
    names = analysis.t.symbol_table.get_sym_table()
    table = table.assign(text=table["name"].map(lambda name: names[name]), kind=table["cat"].map(lambda cat: names[cat]))
    operators = table[table["kind"] == "cpu_op"]
    theirs = {name: (len(rows), float(rows["dur"].sum())) for name, rows in operators.groupby("text")}
    compare_operators("Holistic Trace Analysis", ours, theirs, TOLERANCE_MICROSECONDS)
    steps = sorted(table[table["text"].str.startswith("ProfilerStep#")]["text"])
    if steps != [f"ProfilerStep#{step}" for step in range(4, 9)]:
        sys.exit(f"Holistic Trace Analysis sees the steps {steps}")
    events = json.loads(path.read_text())["traceEvents"]
    written = sum(event.get("cat") == "cpu_op" for event in events)
    if written != len(operators):
        sys.exit(f"{written} operators were written, {len(operators)} were read")


main(*sys.argv[1:])
