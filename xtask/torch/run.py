"""Real PyTorch on the CPU: scripts measured as they are and under each remedy that applies there.

Run `python xtask/torch/run.py --python PYTHON [NAME ...]`; PYTHON has torch, transformers, lightning and accelerate.
Each check is a function of `checks.py`, two at a time (`--jobs`). A check whose package is missing fails.
"""
import argparse
import concurrent.futures
import sys
import time
import traceback

sys.dont_write_bytecode = True

import agent_checks  # noqa: E402
import checks  # noqa: E402
import command_checks  # noqa: E402
import conductor_checks  # noqa: E402
import dataset_checks  # noqa: E402
import package_checks  # noqa: E402
import place_checks  # noqa: E402
import readme_checks  # noqa: E402
import record_checks  # noqa: E402
import switch_checks  # noqa: E402
import workshop_checks  # noqa: E402
from harness import Place  # noqa: E402


def run(name, check, place):
    start = time.perf_counter()
    try:
        check(place)
        verdict = "passed"
    except Exception:  # noqa: BLE001
        verdict = "FAILED"
        traceback.print_exc()
    words = name.removeprefix("check_").replace("_", " ")
    print(f"{verdict} {time.perf_counter() - start:6.1f} s  {words}", flush=True)
    return verdict == "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--headroom", help="the binary: `headroom optimize` is run too")
    parser.add_argument("--wheel", help="the wheel around it: it is installed and used too")
    parser.add_argument("--verbose", action="store_true", help="one line per process")
    parser.add_argument("--jobs", type=int, default=2, help="checks at a time")
    parser.add_argument("names", nargs="*", help="parts of names of checks; all without")
    arguments = parser.parse_args()
    modules = [checks, place_checks, dataset_checks, record_checks, switch_checks, conductor_checks]
    modules += [command_checks, readme_checks, agent_checks, workshop_checks] if arguments.headroom else []
    modules += [package_checks] if arguments.wheel else []
    functions = {name: check for module in modules for name, check in vars(module).items()}
    found = {name: check for name, check in functions.items() if name.startswith("check_")}
    chosen = [name for name in found if not arguments.names or any(part in name for part in arguments.names)]
    place = Place(arguments.python, arguments.headroom, arguments.wheel)
    begin = time.perf_counter()
    try:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = list(pool.map(lambda name: run(name, found[name], place), chosen))
    finally:
        place.remove()
    seconds = time.perf_counter() - begin
    failed = verdicts.count(False)
    print(f"{len(chosen) - failed} of {len(chosen)} passed, {place.runs} processes, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
