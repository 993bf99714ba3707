"""TensorBoard's own event reader finds every scalar of every step of a profile, with the values of the other files."""
import json
import math
import sys
from pathlib import Path

from headroom_runs import only, profile_nano
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {
    "train/loss", "train/learning_rate", "train/gradient_norm",
    "speed/samples_per_sec", "speed/tokens_per_sec", "speed/step_seconds",
    "memory/peak_mb", "memory/reserved_mb",
}


def main(binary, folder):
    run, _ = profile_nano(binary, Path(folder))
    events = EventAccumulator(str(only(run, "events.out.tfevents.*")))
    events.Reload()
    found = set(events.Tags()["scalars"])
    if found != TAGS:
        sys.exit(f"missing {TAGS - found}, unknown {found - TAGS}")
    steps = json.loads((run / "flops_profile.json").read_text())["step_by_step_results"]
    for tag in TAGS:
        scalars = events.Scalars(tag)
        if [scalar.step for scalar in scalars] != [row["step"] for row in steps]:
            sys.exit(f"{tag} has steps {[scalar.step for scalar in scalars]}")
        if not all(math.isfinite(scalar.value) for scalar in scalars):
            sys.exit(f"{tag} holds a value that is not finite")
    for scalar, row in zip(events.Scalars("train/loss"), steps):
        if not math.isclose(scalar.value, row["loss"], rel_tol=1e-6):
            sys.exit(f"step {row['step']}: loss {scalar.value} in the events, {row['loss']} in flops_profile.json")
    peak = json.loads((run / "memory_analysis.json").read_text())["peak_memory_mb"]
    if not math.isclose(events.Scalars("memory/peak_mb")[0].value, peak, rel_tol=1e-6):
        sys.exit("memory/peak_mb is not the peak of memory_analysis.json")


main(*sys.argv[1:])
