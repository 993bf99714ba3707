"""The checks: what a note must say of each script, and what each remedy may change."""
import json
import os
import subprocess
import threading

from harness import did, distance

SAME = "loader-workers=2,loader-pinning,non-blocking-copies,foreach-optimizer,zero-grad-none,gc-frozen,expandable-segments"
PLAIN = {}
FIRST = threading.Lock()


def plain(place):
    """The plain script as it is, run once."""
    with FIRST:
        if not PLAIN:
            PLAIN.update(place.note("plain.py", REMEDIES_OFFER="1"))
    return PLAIN


def check_a_plain_loop_is_measured_without_being_touched(place):
    note = plain(place)
    assert "the script is done" in note["output"] and sum(note["loader_wait_seconds"]) > 6 * 0.02
    assert note["steps"] == 8 and note["phase"] == "done" and note["warmup_steps"] == 2
    assert len(note["step_seconds"]) == 6 and all(seconds > 0 for seconds in note["step_seconds"])
    assert [len(step) for step in note["losses"]] == [1] * 8 and note["finite"]
    assert note["samples"] == [8] * 8 and len(note["loader_wait_seconds"]) == 6
    assert note["seeds_itself"] is False and note["fills_gradients"] and note["problems"] == []
    (module,) = note["modules"]
    assert module["class"] == "Sequential" and module["trained"] == module["parameters"] == 4900
    assert module["repeated_blocks"] == 2 and module["inputs"] == [[8, 16]]
    (loader,) = note["loaders"]
    assert loader["workers"] == 0 and len(loader["digests"]) == 2 and loader["digests"][0] != loader["digests"][1]
    obstacles = {name: offer["obstacle"] for name, offer in note["offered"].items()}
    for name in ["loader-workers", "fused-optimizer", "foreach-optimizer", "zero-grad-none", "compile", "compile-blocks"]:
        assert obstacles[name] is None, (name, obstacles[name])
    for name in ["sdpa", "channels-last", "ddp-bucket-view", "tf32", "loader-pinning"]:
        assert obstacles[name], name


def check_remedies_of_class_same_leave_losses_and_batches_bitwise(place):
    note = place.note("plain.py --steps 1000", SAME, MEASURE_STOP="1")
    base = plain(place)
    # Two workers have four batches ahead each: steps are timed once those are used up, and the loop waits.
    assert "the script is done" not in note["output"] and 9 + 6 <= note["steps"] <= 17 + 6, note["steps"]
    assert note["losses"][:8] == base["losses"], (note["losses"], base["losses"])
    assert note["gradients"][:1] == base["gradients"], (note["gradients"], base["gradients"])
    assert note["loaders"][0]["digests"][:2] == base["loaders"][0]["digests"]
    before, after = sum(base["step_seconds"]), sum(note["step_seconds"])
    assert after < 0.8 * before, ("two workers hide a slow collate", before, after)
    assert note["loaders"][0]["workers"] == 2 and note["loaders"][0]["persistent"]
    assert did(note, "loader-workers") == "1 DataLoader got 2 workers, kept between epochs, 4 batches ahead each"
    assert did(note, "foreach-optimizer") == "1 AdamW told to update lists of parameters"
    assert "dropped gradients" in did(note, "zero-grad-none")
    assert did(note, "gc-frozen")
    for name in ["loader-pinning", "non-blocking-copies", "expandable-segments"]:
        assert note["remedies"][name]["did"] == [] and note["remedies"][name]["nothing"], name
    assert [outcome["class"] for outcome in note["remedies"].values()] == ["same"] * 7


def check_random_numbers_of_loading_are_seen_and_shifted_alone(place):
    assert plain(place)["loaders"][0]["draws_random"] is False
    base = place.note("plain.py --noise 0.1")
    assert base["loaders"][0]["draws_random"]
    shifted = place.note("plain.py --noise 0.1", MEASURE_SHIFT_LOADING="1")
    first, second = base["loaders"][0]["digests"], shifted["loaders"][0]["digests"]
    for one, other in zip(first[:2], second[:2]):
        assert one.split()[0] != other.split()[0], "other inputs from the first batch on"
        assert one.split()[1] == other.split()[1], "the order of samples stays"
    assert shifted["loaders"][0]["draws_random"] and 1e-4 < distance(base, shifted) < 0.5, distance(base, shifted)
    # Workers leave the script's own generators alone, and so does a shifted run: weights and order are those of the script.
    other = place.note("plain.py --noise 0.1", MEASURE_SHIFT_LOADING="2")
    assert other["loaders"][0]["digests"][0] != second[0]


def check_a_run_that_is_moved_comes_apart_by_little_and_otherwise_by_number(place):
    base = plain(place)
    moved = [place.note("plain.py", MEASURE_MOVE_WEIGHTS="5e-4", MEASURE_MOVE_NUMBER=number) for number in "112"]
    assert moved[0]["losses"] == moved[1]["losses"] != moved[2]["losses"]
    for note in moved[1:]:
        assert 1e-8 < distance(base, note) < 1e-2, distance(base, note)
    # Two optimizers: state that one of them restores does not belong to the other's graph.
    place.note("adversaries.py", MEASURE_MOVE_WEIGHTS="5e-4")
    base = place.note("plain.py --dropout 0.3")
    dropped = place.note("plain.py --dropout 0.3", MEASURE_OTHER_DROPOUT="1")
    assert 1e-5 < distance(base, dropped) < 0.5, distance(base, dropped)
    assert base["loaders"][0]["digests"] == dropped["loaders"][0]["digests"], "loading draws what it drew"


def check_batches_that_workers_made_ahead_are_not_taken_for_the_speed_of_loading(place):
    """Two workers at 0.1 s per batch make 20 per second at most, however many lie ready."""
    command = "plain.py --steps 1000 --collate-seconds 0.1"
    note = place.note(command, "loader-workers=2", MEASURE_STOP="1", MEASURE_WARMUP="1", MEASURE_TIMED="12")
    mean = sum(note["step_seconds"]) / len(note["step_seconds"])
    ahead = note["made_ahead"]
    steady = mean * ahead["taken"] / (ahead["taken"] - ahead["used_up"])
    assert note["loaders"][0]["workers"] == 2 and steady > 0.035, (mean, ahead)
    assert "waited" not in note["loaders"][0] and "iterator" not in note["loaders"][0]
    assert plain(place)["made_ahead"] is None, "nobody makes batches ahead"
    assert plain(place)["making_seconds"] is None


def check_an_epoch_too_short_to_empty_the_queue_is_bounded_by_how_fast_workers_make_batches(place):
    """Eight workers at 0.4 s per batch make 20 per second at most; 16 batches of an epoch of 32 lie ready."""
    command = "plain.py --steps 32 --collate-seconds 0.4"
    note = place.note(command, "loader-workers=8", MEASURE_STOP="1", MEASURE_WARMUP="2", MEASURE_TIMED="16")
    assert did(note, "loader-workers") == "1 DataLoader got 8 workers, kept between epochs", note["remedies"]
    assert note["made_ahead"] is None, note["made_ahead"]
    assert 0.03 < note["making_seconds"] < 0.12, note["making_seconds"]


def check_a_deep_copy_of_a_module_under_autocast_computes_with_its_own_weights(place):
    note = place.note("averages.py", "bf16-autocast")
    assert did(note, "bf16-autocast") == "1 Net put under bf16 autocast", note["remedies"]
    assert "the copy is its own: True" in note["output"], note["output"]


def check_autocast_changes_losses_by_the_precision_of_bf16(place):
    note = place.note("plain.py", "bf16-autocast")
    assert note["autocasts"] == ["bfloat16"] and plain(place)["autocasts"] == []
    assert did(note, "bf16-autocast") == "1 Sequential put under bf16 autocast"
    assert 1e-6 < distance(note, plain(place)) < 0.05, distance(note, plain(place))


def check_compiled_code_draws_the_same_dropout_when_asked(place):
    base = place.note("plain.py --dropout 0.3 --steps 14")
    note = place.note("plain.py --dropout 0.3 --steps 14", "compile", MEASURE_FALLBACK_RANDOM="1")
    assert did(note, "compile") == "1 Sequential compiled"
    assert base["modules"][0]["dropouts"] == 2 and not base["modules"][0]["compiled"] and note["modules"][0]["compiled"]
    assert distance(note, base) < 1e-4, distance(note, base)
    compiled = note["compile"]
    assert compiled["graphs"] == 1 and compiled["graph_breaks"] == 0 and compiled["failures"] == 0, compiled
    assert compiled["seconds"] > 0.1 and compiled["seconds_in_timed"] == 0, compiled
    assert base["compile"] is None and note["phase"] == "done"


def check_steps_are_timed_until_the_seconds_are_full(place):
    note = place.note("plain.py --steps 1000", MEASURE_STOP="1", MEASURE_SECONDS="0.5")
    assert 6 < len(note["step_seconds"]) <= 60 and sum(note["step_seconds"]) >= 0.5, note["step_seconds"]
    assert len(note["losses"]) == 8, "losses of as many steps as without"
    # The script ends before they are: six were asked for, and were timed.
    note = place.note("plain.py --steps 12", MEASURE_SECONDS="600")
    assert note["phase"] == "done" and len(note["step_seconds"]) == 10 and note["problems"] == []


def check_bytecode_is_kept_where_torch_was_installed_without(place):
    own = place.folder / "bare"
    (own / "torch").mkdir(parents=True)
    (own / "torch" / "__init__.py").write_text("VALUE = 1\n")
    (own / "show.py").write_text("import sys\nimport torch\nprint(torch.VALUE, sys.pycache_prefix)\n")
    kept = place.folder / "bytecode"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(place.hook), str(own)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HEADROOM_REMEDIES": "gc-frozen",
        "HEADROOM_BYTECODE": str(kept),
    }
    words = [place.python, str(own / "show.py")]
    for _ in range(2):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == f"1 {kept}", (done.stdout, done.stderr)
    assert list(kept.rglob("torch/__init__*.pyc")) and not (own / "torch" / "__pycache__").exists()
    (own / "torch" / "__pycache__").mkdir()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "1 None", "an installation with bytecode keeps its own"


def check_planted_wrong_remedies_show(place):
    base = plain(place)
    note = place.note("plain.py", "planted-skip-backward")
    assert did(note, "planted-skip-backward") and note["losses"][0] == base["losses"][0]
    assert distance(note, base) > 1e-2, distance(note, base)
    note = place.note("plain.py", "planted-drop-batches")
    assert note["loaders"][0]["digests"] != base["loaders"][0]["digests"] and distance(note, base) > 1e-2
    note = place.note("plain.py", "planted-return-early")
    assert did(note, "planted-return-early") and distance(note, base) > 1e-2


def check_a_script_keeps_its_own_sitecustomize_and_is_ended_although_it_goes_on(place):
    own = place.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.write(1, b'mine\\n')\n")
    note = place.note("plain.py --stubborn --steps 100000", path=[own], MEASURE_STOP="1")
    assert "mine" in note["output"] and "the script is done" not in note["output"]
    assert note["steps"] == 8 and note["phase"] == "done"


def check_failures_are_named_and_the_script_runs_on(place):
    notes = place.run("plain.py --fail-at 5", "no-such-remedy,planted-raises", fails=True)
    (note,) = notes
    assert note["exception"] == "RuntimeError: planted failure" and note["steps"] == 5 and note["phase"] == "timed"
    assert [problem["code"] for problem in note["problems"]] == ["ended-early"]
    assert "FileNotFoundError" in note["remedies"]["no-such-remedy"]["errors"][0]
    assert note["remedies"]["planted-raises"]["errors"] == ["ValueError: planted"]


def check_scripts_that_cannot_be_measured_are_told_why(place):
    codes = {}
    for kind in ["no-optimizer", "no-step", "no-loss", "not-finite"]:
        (note,) = place.run(f"odd.py {kind}")
        codes[kind] = [problem["code"] for problem in note["problems"]]
        assert note["finite"] == (False if kind == "not-finite" else None)
    assert codes == {
        "no-optimizer": ["no-optimizer"],
        "no-step": ["no-step"],
        "no-loss": ["no-loss", "no-module"],
        "not-finite": ["no-module"],
    }, codes
    assert note["losses"][3] == [None]


def check_attention_weights_that_nobody_reads_are_not_computed(place):
    base = place.note("attention.py", REMEDIES_OFFER="1")
    assert base["modules"][0]["multihead_attentions"] == 6 and base["modules"][0]["weights_unused"] == 3
    assert base["offered"]["sdpa"]["obstacle"] is None
    # The compiler meets a method that was replaced before it.
    note = place.note("attention.py", "sdpa,compile=aot_eager")
    assert did(note, "sdpa") == "3 MultiheadAttentions without weights, which nobody reads"
    assert distance(note, base) < 1e-4 and note["compile"]["graphs"] == 1, note["compile"]


def check_images_are_laid_out_switches_stay_set_and_rounding_is_small(place):
    base = place.note("images.py", REMEDIES_OFFER="1")
    assert base["modules"][0]["convolutions"] == 2 and base["offered"]["channels-last"]["obstacle"] is None
    assert base["settings"]["tf32"] is False and base["settings"]["cudnn_benchmark"] is False
    note = place.note("images.py", "channels-last,tf32,cudnn-benchmark,fused-optimizer,threads=2")
    assert did(note, "fused-optimizer") == "1 SGD fused into one kernel" and note["optimizers"][0]["fused"]
    assert did(note, "threads") == "2 threads in place of 1" and note["settings"]["threads"] == 2
    assert did(note, "channels-last") == "2 weights laid out channels last"
    assert note["settings"]["tf32"] is True and note["settings"]["cudnn_benchmark"] is True
    assert note["remedies"]["tf32"]["nothing"] == "no trained module was on a CUDA device"
    assert distance(note, base) < 1e-4, distance(note, base)


def check_two_optimizers_make_one_step_and_scaled_losses_are_unscaled(place):
    base = place.note("adversaries.py")
    scaled = place.note("adversaries.py --scaler")
    for note in (base, scaled):
        assert len(note["optimizers"]) == 2 and len(note["modules"]) == 2
        # Until the second optimizer has stepped, each step of the first one is taken for a step of the loop.
        assert [len(step) for step in note["losses"]][:6] == [1, 1, 2, 3, 3, 3], note["losses"]
    assert scaled["scaled"] and not base["scaled"]
    assert distance(base, scaled) < 1e-5, distance(base, scaled)


def check_a_script_that_ends_while_steps_are_timed_is_known_as_a_whole(place):
    note = place.note("returns.py", "fused-optimizer", MEASURE_SECONDS="100")
    assert note["phase"] == "done" and note["steps"] == 12
    (optimizer,) = note["optimizers"]
    assert optimizer["class"] == "AdamW" and optimizer["fused"]
    (made,) = note["places"]["optimizers"]
    assert made["place"]["file"] == "returns.py" and made["place"]["function"] == "train", made


def check_pinned_batches_are_copied_without_a_wait(place):
    """Without a device: the script says that there is one and that its batches are pinned."""
    note = place.note("pinned.py", "loader-pinning,non-blocking-copies")
    assert did(note, "loader-pinning") == "1 DataLoader got pinned memory" and note["loaders"][0]["pinned"]
    assert did(note, "non-blocking-copies") == "batches are copied without a wait"
    assert "copies of batches: [True], of others: [False]" in note["output"], note["output"]


def check_a_trainer_of_transformers(place):
    base = place.note("trainer.py", REMEDIES_OFFER="1")
    assert "offline eager" in base["output"]
    assert base["steps"] == 8 and [len(step) for step in base["losses"]] == [2] * 8
    assert base["modules"][0]["attention"] == ["eager"] and base["seeds_itself"]
    note = place.note("trainer.py", "sdpa,fused-optimizer,loader-workers=1,compile-blocks=aot_eager", MEASURE_STOP="1")
    assert "offline eager" not in note["output"] and note["steps"] == 8 and note["phase"] == "done"
    assert "switched to SDPA" in did(note, "sdpa") and did(note, "fused-optimizer") == "1 AdamW fused into one kernel"
    assert did(note, "compile-blocks") == "2 LlamaDecoderLayers compiled"
    assert note["compile"]["graphs"] and note["compile"]["failures"] == 0, note["compile"]
    assert note["loaders"][0]["digests"] == base["loaders"][0]["digests"]
    assert distance(note, base) < 1e-3, distance(note, base)


def check_lightning(place):
    base = place.note("lightning_fit.py")
    assert base["steps"] == 8 and base["modules"][0]["class"] == "Sequential" and base["seeds_itself"]
    note = place.note("lightning_fit.py", "loader-workers=1,foreach-optimizer,gc-frozen", MEASURE_STOP="1")
    assert note["losses"] == base["losses"] and did(note, "loader-workers").startswith("2 DataLoaders got 1 worker")
    assert [one["digests"] for one in note["loaders"]] == [one["digests"] for one in base["loaders"]]


def check_accelerate_launch(place):
    launcher = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1"]
    launcher += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    base = place.note("accelerated.py")
    assert base["steps"] == 8 and [len(step) for step in base["losses"]] == [2] * 8
    note = place.note("accelerated.py", "loader-workers=1,zero-grad-none", launcher=launcher)
    assert note["losses"] == base["losses"] and did(note, "loader-workers")
    assert note["remedies"]["zero-grad-none"]["nothing"] == "the script never asks for zeros"


def check_torchrun_with_two_ranks(place):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29617"]
    notes = place.run("distributed.py", "ddp-bucket-view,ddp-static-graph", launcher=launcher)
    notes = [note for note in notes if note["steps"]]
    assert [(note["rank"], note["world_size"], note["steps"]) for note in notes] == [(0, 2, 8), (1, 2, 8)]
    assert notes[0]["losses"] != notes[1]["losses"]
    for note in notes:
        assert note["modules"][0]["distributed"] and len(note["modules"]) == 1
        assert did(note, "ddp-bucket-view") == "1 DistributedDataParallel told to keep gradients in its buckets"
        assert did(note, "ddp-static-graph") and "views: True" in note["output"]
        assert all(one == other for one, other in note["losses"]), "as gradients that are averaged by hand"


def check_training_in_another_process_is_seen_there_alone(place):
    notes = place.run("elsewhere.py spawn", "gc-frozen")
    trained = [note for note in notes if note["steps"]]
    assert [(note["kind"], note["steps"]) for note in trained] == [("child", 8)]
    assert did(trained[0], "gc-frozen")
    for note in notes[1:]:
        assert note["remedies"]["gc-frozen"]["did"] == [] and note["problems"][0]["code"] == "no-optimizer"


def check_recording_still_leaves_its_traces_also_with_remedies(place):
    folder, notes = place.folder / "recorded", place.folder / "record-notes"
    folder.mkdir(), notes.mkdir()
    variables = {"RECORD_FOLDER": str(folder), "RECORD_NOTES": str(notes), "RECORD_WARMUP": "2", "RECORD_TIMED": "3"}
    variables.update(RECORD_STEPS="1", MEASURE_TIMED="0")
    note = place.note("plain.py --steps 12", "foreach-optimizer", **variables)
    assert note["phase"] == "warm-up" and did(note, "foreach-optimizer")
    (file,) = notes.iterdir()
    recorded = json.loads(file.read_text())
    assert recorded["phase"] == "done" and len(recorded["seconds_without_profiler"]) == 3, recorded
    assert os.path.exists(recorded["trace"]) and os.path.exists(recorded["light_trace"])
    assert sorted(recorded) == sorted(
        ["steps", "trace", "light_trace", "seconds_without_profiler", "measured_on", "phase", "error", "own_profiler"]
    )
