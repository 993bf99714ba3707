"""`headroom optimize` on real scripts: from the first run to the patch, and what it says of scripts that it cannot help."""
import json
import signal
import time

from harness import HERE, fits_schema, unchanged

SHORT = "--steps 10 --warmup-steps 2 --rounds 2"


def check_a_slow_loader_is_found_mended_proved_and_patched(place):
    """0.15 s of collating per batch: no noise hides what workers bring."""
    options = f"{SHORT} --only loader-workers --time-limit 6m --apply"
    work, record, printed = place.optimize("slow", options, "plain.py --steps 400 --collate-seconds 0.15")
    assert record["kept"] == ["loader-workers"], printed
    assert record["findings"][0]["name"] == "data-loading" and record["speedup"] > 1.2, printed
    (row,) = [row for row in record["remedies"] if row["kept"]]
    assert row["predicted_saving_percent"] > 50 and row["did"], row
    assert {name: gate["result"] for name, gate in record["gates"].items() if gate["result"] != "pass"} == {}, printed
    assert record["gates"]["losses"]["figure"] == 0 and record["gates"]["batches"]["figure"] == 0
    patch = record["patch"]
    assert patch["files"] == ["plain.py"] and patch["applied"] and patch["speedup"] > 1.2, printed
    text = (work / "runs/optimize-plain/optimize.patch").read_text()
    assert "num_workers=" in text and "persistent_workers=True" in text, text
    before = (HERE / "scripts/plain.py").read_text()
    assert "num_workers=" in (work / "plain.py").read_text() and before.count("num_workers") == 0
    (work / "plain.py").write_text(before)
    assert unchanged(work), "something else of the user's was changed or left behind"


def check_remedies_are_switched_between_the_steps_of_one_process_and_proved_in_fresh_ones(place):
    """Updating parameters one by one takes most of this step. Beside another check, two processes of each differ by too much
    to prove it."""
    options = f"{SHORT.replace('--rounds 2', '--rounds 4')} --only fused-optimizer,gc-frozen --time-limit 4m"
    work, record, printed = place.optimize("many", options, "many.py --steps 1000000")
    assert "confirmed in" in printed and record["kept"] == ["fused-optimizer"], printed
    rows = {row["name"]: row for row in record["remedies"]}
    assert rows["fused-optimizer"]["rounds"] >= 3 and rows["fused-optimizer"]["ci95_low"] > 1.1, rows
    assert record["proved_as"] == "patch" and record["ci95_low"] > 1.1, record
    assert "fused=True" in (work / "runs/optimize-many/optimize.patch").read_text()
    search = record["search"]
    stages = [one["stage"] for one in search["rounds"]]
    assert stages.count("select") >= 3 and stages.count("confirm") >= 5 and search["chance"] == 0.05, search
    switch = {one["name"]: one for one in search["switches"]}["fused-optimizer"]
    assert switch["shadow"] == "same" and switch["verdict"] == "kept" and rows["fused-optimizer"]["gates"], switch
    assert unchanged(work)
    # Applied later, without running again; then it is there, and a change of the file is respected.
    assert "To apply the patch, without running again: headroom apply 1" in printed, printed
    apply = lambda *flags: place.command("many", work, "apply", "1", *flags)
    assert "+" in apply("--dry-run").stdout and unchanged(work)
    assert apply().returncode == 0 and "fused=True" in (work / "many.py").read_text()
    assert "in the files already" in apply().stdout
    (work / "many.py").write_text("# mine\n")
    refused = apply()
    assert refused.returncode == 2 and "has changed since" in refused.stderr, refused.stderr


def check_one_ctrl_c_proves_what_is_kept_and_a_request_to_terminate_ends_at_once(place):
    """Once by a person, twice, or by a supervisor that does not wait."""
    options = f"{SHORT} --only fused-optimizer,gc-frozen,zero-grad-none,threads --time-limit 4m"
    once, twice, terminate = [signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM]
    for name, signals, code in [("once", once, 130), ("twice", twice, 130), ("terminate", terminate, 143)]:
        # From now on, fresh processes prove whatever was confirmed.
        work, child = place.started(name, options, "many.py --steps 1000000", until="confirmed in")
        for at, number in enumerate(signals):
            time.sleep(1.2 * at)
            child.send_signal(number)
        asked = time.monotonic()
        out, printed = child.communicate(timeout=300)
        seconds = time.monotonic() - asked
        record = json.loads((work / "runs/optimize-many/validation.json").read_text())
        assert child.returncode == code and record["ended"] == "interrupted", printed
        assert "no process is left running" in printed and unchanged(work), printed
        fits_schema(record)
        rows = {row["name"]: row for row in record["remedies"]}
        if signals is once:
            assert "ending the search" in printed and rows["fused-optimizer"]["was_tried"], printed
            # Beside another check, processes may differ by too much to decide it.
            assert record["kept"] == [] or record["proved_as"] == "patch" and record["rounds"] >= 2 and out, record
            assert rows["threads"]["outcome"] == "not tried: the search was interrupted", rows["threads"]
            assert not rows["threads"]["was_tried"] and rows["threads"]["applies"]
        else:
            assert record["kept"] == [] and record["patch"] is None and seconds < 15, (seconds, printed)
            assert record["search"]["rounds"], record


def check_a_dry_run_predicts_and_tries_nothing(place):
    work, record, printed = place.optimize("dry", f"{SHORT} --dry-run", "plain.py --steps 400 --collate-seconds 0.05")
    assert record["dry_run"] and record["kept"] == [] and record["gates"] == {}, printed
    rows = {row["name"]: row for row in record["remedies"]}
    assert rows["loader-workers"]["applies"] and rows["loader-workers"]["predicted_saving_percent"] > 20, printed
    assert not any(row["was_tried"] for row in rows.values()), rows
    assert "what holds the step back, by the recording:" in printed and "data-loading" in printed, printed
    assert "not tried" in rows["tf32"]["outcome"] and "dry run" in printed
    assert unchanged(work)


def check_scripts_that_cannot_be_helped_get_a_plain_answer(place):
    for kind, words in [("no-optimizer", "recorded"), ("no-step", "recorded")]:
        work, record, printed = place.optimize(kind, f"{SHORT} --time-limit 60", f"odd.py {kind}", code=3)
        assert record is None and words in printed and "Traceback" not in printed.split("its last output")[0], printed
        assert unchanged(work)
    work, record, printed = place.optimize("short", f"{SHORT} --time-limit 60", "plain.py --steps 3", code=3)
    assert "steps" in printed and unchanged(work), printed
    # Twelve steps of eight seconds: declined before the time is up, by their pace.
    began = time.monotonic()
    work, record, printed = place.optimize("pace", f"{SHORT} --time-limit 45", "plain.py --collate-seconds 8", code=3)
    assert "its steps take 8." in printed and "--time-limit is 45 s" in printed and unchanged(work), printed
    assert time.monotonic() - began < 45, "not all of the time is spent"


def check_findings_survive_a_search_that_fails(place):
    """The third process of this script fails; the recording takes one or two."""
    count = "import os\nstarts = len(os.listdir('seen'))\nif starts >= 2: raise ValueError('no third time')\n"
    text = count + "open(f'seen/{starts}', 'w').close()\n" + (HERE / "scripts/plain.py").read_text()

    def beside(work):
        (work / "seen").mkdir()
        (work / "plain.py").write_text(text)

    options = f"{SHORT} --time-limit 90 --allow-write seen"
    command = "plain.py --steps 400 --collate-seconds 0.1"
    work, record, printed = place.optimize("third", options, command, code=3, beside=beside)
    assert record["ended"] == "failed" and "no third time" not in record["failure"], record
    assert record["findings"][0]["name"] == "data-loading" and record["baseline_step_seconds"] > 0.1, record
    assert "TR" in printed.split("what holds the step back, by the recording:")[1], printed
    folder = work / "runs/optimize-plain"
    assert list(folder.glob("recording/*.json*")) and "The search failed" in (folder / "optimize.md").read_text()


def check_a_large_file_that_the_script_writes_over_stays_as_it_was(place):
    """Under layers it is written at its own path; in a copy it is a link to the user's own, which the hook replaces."""
    content = bytes(range(256)) * (9 << 12)
    command = "writes.py --steps 400 --collate-seconds 0.01"
    for way in ["overlay", "landlock", "copy"]:
        options = f"{SHORT} --dry-run --isolation {way}"
        work, record, printed = place.optimize(
            f"writes-{way}", options, command, beside=lambda work: (work / "large.bin").write_bytes(content)
        )
        assert record["dry_run"] and (work / "large.bin").read_bytes() == content, printed


def check_workers_that_would_miss_a_level_per_epoch_are_refused(place):
    """Every epoch is longer than the steps that are compared."""
    options = f"{SHORT} --only loader-workers --time-limit 4m"
    work, record, printed = place.optimize("level", options, "varying.py level --read-seconds 0.005")
    (row,) = [row for row in record["remedies"] if row["was_tried"]]
    assert record["kept"] == [] and row["speedup"] > 1.2, printed
    assert row["outcome"].startswith("not kept: its batches are wrong"), printed
    assert "`level` is 0 in the workers and 1 in the script" in row["outcome"], printed
    assert unchanged(work)


def check_a_script_that_no_seed_fixes_is_not_decided_and_told_why(place):
    options = f"{SHORT} --only loader-workers --time-limit 4m"
    work, record, printed = place.optimize("unseeded", options, "varying.py default-rng --read-seconds 0.005")
    (row,) = [row for row in record["remedies"] if row["was_tried"]]
    assert record["kept"] == [] and "cannot be decided" in row["outcome"], printed
    assert "numpy.random.default_rng().random())` (varying.py:" in record["own_loss_sources"][0], record
    assert "draws from the system" in printed and unchanged(work), printed
