"""Data sets that a script changes while workers read them, and numbers that no seed fixes: seen, named, and not passed."""
import os
import subprocess
import time

from harness import HERE

PROOF = {"MEASURE_STOP": "1", "MEASURE_REREAD": "1", "MEASURE_CUT": "4", "MEASURE_TIMED": "8", "MEASURE_BATCHES": "64"}


def check_wrong_data_sets_are_refused_and_right_ones_pass(place):
    notes = place.folder / "judged"
    notes.mkdir()
    variables = {"MEASURE_NOTES": str(notes), "MEASURE_TIMED": "0", "MEASURE_REREAD": "1"}
    environment = {
        **os.environ,
        "PYTHONPATH": str(place.hook),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        **{f"HEADROOM_{name}": value for name, value in variables.items()},
    }
    words = [place.python, str(HERE / "datasets" / "judge.py")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    print("  " + done.stdout.strip().splitlines()[-1], flush=True)


def check_what_the_script_changes_is_read_again_over_an_epochs_end_and_named(place):
    named = {
        "level": "`level` is 0 in the workers and 1 in the script",
        "middle": "`level` is 0 in the workers and 1 in the script",
        "mined": "`hard` is a list of 480 in the workers and a list of 8 in the script",
    }
    for kind, sentence in named.items():
        note = place.note(f"varying.py {kind}", "loader-workers=2", **PROOF)
        reread = note["loaders"][0]["reread"]
        assert reread["different"] and reread["fields"][0] == sentence, (kind, reread)
        assert note["epoch_ends"] == [4, 6, 8], note["epoch_ends"]
    note = place.note("varying.py none", "loader-workers=2", **PROOF)
    reread = note["loaders"][0]["reread"]
    assert reread["different"] == reread["unread"] == reread["partly"] == 0 and reread["samples"] >= 60, reread
    own = place.note("varying.py none", **PROOF)
    assert own["loaders"][0]["reread"] is None and own["epoch_ends"] == note["epoch_ends"]
    assert own["losses"] == note["losses"], "over three ends of epochs"
    assert own["loaders"][0]["digests"] == note["loaders"][0]["digests"] and len(own["loaders"][0]["digests"]) >= 10


def check_a_proof_waits_at_the_exit_for_no_worker_that_stays(place):
    begin = time.perf_counter()
    note = place.note("staying_workers.py", "loader-workers=3", **PROOF)
    assert note["epoch_ends"] == [4] and note["exception"] is None, note
    assert time.perf_counter() - begin < 12, time.perf_counter() - begin


def check_what_no_seed_fixes_is_named(place):
    lines = {}
    for kind in ["default-rng", "system-random", "urandom", "torch-seed", "none"]:
        lines[kind] = [one["code"] for one in place.note(f"varying.py {kind}", MEASURE_STOP="1")["entropy"]]
    assert lines == {
        "default-rng": ["noise = float(numpy.random.default_rng().random())"],
        "system-random": ["noise = random.SystemRandom().random()"],
        "urandom": ["noise = os.urandom(1)[0] / 256"],
        "torch-seed": ["torch.seed()"],
        "none": [],
    }, lines
    first, second = (place.note("varying.py time", MEASURE_STOP="1")["seeds"] for _ in range(2))
    assert first[0]["code"] == "torch.manual_seed(time.time_ns() % (1 << 40))" and first[0]["file"] == "varying.py", first
    assert first[0]["value"] != second[0]["value"] and first[0]["line"] == second[0]["line"]
