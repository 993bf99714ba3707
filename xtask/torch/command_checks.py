"""`headroom optimize` on real scripts: from the first run to the patch, and what it says of scripts that it cannot help."""
from harness import HERE, unchanged

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
    """Updating parameters one by one takes most of this step."""
    options = f"{SHORT} --only fused-optimizer,gc-frozen --time-limit 4m"
    work, record, printed = place.optimize("many", options, "many.py --steps 1000000")
    assert "confirmed in" in printed and record["kept"] == ["fused-optimizer"], printed
    rows = {row["name"]: row for row in record["remedies"]}
    assert rows["fused-optimizer"]["rounds"] >= 5 and rows["fused-optimizer"]["ci95_low"] > 1.1, rows
    assert record["proved_as"] == "patch" and record["ci95_low"] > 1.1, record
    assert "fused=True" in (work / "runs/optimize-many/optimize.patch").read_text()
    assert unchanged(work)


def check_a_dry_run_predicts_and_tries_nothing(place):
    work, record, printed = place.optimize("dry", f"{SHORT} --dry-run", "plain.py --steps 400 --collate-seconds 0.05")
    assert record["dry_run"] and record["kept"] == [] and record["gates"] == {}, printed
    rows = {row["name"]: row for row in record["remedies"]}
    assert rows["loader-workers"]["was_tried"] and rows["loader-workers"]["predicted_saving_percent"] > 20, printed
    assert "not tried" in rows["tf32"]["outcome"] and "dry run" in printed
    assert unchanged(work)


def check_scripts_that_cannot_be_helped_get_a_plain_answer(place):
    for kind, words in [("no-optimizer", "recorded"), ("no-step", "recorded")]:
        work, record, printed = place.optimize(kind, f"{SHORT} --time-limit 60", f"odd.py {kind}", code=3)
        assert record is None and words in printed and "Traceback" not in printed.split("its last output")[0], printed
        assert unchanged(work)
    work, record, printed = place.optimize("short", f"{SHORT} --time-limit 60", "plain.py --steps 3", code=3)
    assert "steps" in printed and unchanged(work), printed


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
