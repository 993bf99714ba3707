"""The parser of TensorBoard's PyTorch profiler plugin loads the trace and agrees with our operator times.

The plugin parses without torch: nothing here stands in for it.
"""
import re
import sys
from pathlib import Path

from headroom_runs import compare_operators, only, profile_nano
from torch_tb_profiler import consts
from torch_tb_profiler.profiler.data import RunProfileData

# Times in the file have three decimals of a microsecond.
TOLERANCE_MICROSECONDS = 0.002


def main(binary, folder):
    folder = Path(folder)
    run, ours = profile_nano(binary, folder)
    path = only(run, "*.pt.trace.json")
    if not re.match(consts.WORKER_PATTERN, path.name):
        sys.exit(f"the plugin would not pick up {path.name}")
    cache = folder / "cache"
    cache.mkdir()
    data = RunProfileData.parse("worker", "span", str(path), str(cache))
    data.process()
    # One mark more than there are recorded steps.
    if data.steps_names != ["4", "5", "6", "7", "8", "9"]:
        sys.exit(f"the plugin sees the steps {data.steps_names}")
    theirs = {row.name: (row.calls, row.self_host_duration) for row in data.op_list_groupby_name}
    compare_operators("the plugin", ours, theirs, TOLERANCE_MICROSECONDS)


main(*sys.argv[1:])
