"""The recorder on scripts whose steps are hard to see, or hard to end."""
import json
import os
import subprocess
import time


def recorded(place, name, command, most_seconds=120):
    """Records a script with the hook and ends it, as `headroom record --stop` does: the notes of processes with steps."""
    folder = place.folder / name
    folder.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(place.hook),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "KINETO_LOG_LEVEL": "99",
        "HEADROOM_RECORD_FOLDER": str(folder),
        "HEADROOM_RECORD_STOP": "1",
        "HEADROOM_RECORD_WARMUP": "2",
        "HEADROOM_RECORD_TIMED": "3",
        "HEADROOM_RECORD_STEPS": "1",
        "HEADROOM_PATIENCE": "2",
    }
    begin = time.perf_counter()
    words = [place.python, *command.split()]
    done = subprocess.run(words, env=environment, cwd=place.work, capture_output=True, text=True, timeout=most_seconds)
    notes = [json.loads(file.read_text()) for file in folder.glob("record.*.json")]
    output = f"{command}: {done.returncode} after {time.perf_counter() - begin:.0f} s\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, output
    return [note for note in notes if note["steps"]], output


def check_a_script_with_queues_ends_once_it_is_recorded(place):
    """Whether the main process trains, or waits for one that does."""
    for who in ("main", "child"):
        for start in ("fork", "spawn"):
            notes, output = recorded(place, f"queues-{who}-{start}", f"queues.py {who} {start}")
            assert len(notes) == 1 and notes[0]["phase"] == "done" and notes[0]["trace"], output


def check_weights_updated_by_hand_are_steps_of_a_recording(place):
    notes, output = recorded(place, "by-hand", "by_hand.py --steps 1000")
    assert len(notes) == 1 and notes[0]["phase"] == "done", output
    assert len(notes[0]["seconds_without_profiler"]) == 3 and "the script is done" not in output, output


def check_weights_updated_by_hand_are_measured_and_their_module_found(place):
    for options, passes in (("", 1), ("--accumulate 2", 2)):
        note = place.note(f"by_hand.py {options}", "bf16-autocast")
        assert note["steps"] == 8 and note["phase"] == "done", (options, note["steps"], note["problems"])
        assert [len(step) for step in note["losses"]][:8] == [passes] * 8, note["losses"]
        assert [module["class"] for module in note["modules"]] == ["Words"] and note["problems"] == [], note["problems"]
        assert note["remedies"]["bf16-autocast"]["did"] == ["1 Words put under bf16 autocast"], note["remedies"]
    note = place.note("by_hand.py --raw --steps 12")
    assert note["steps"] == 8 and [one["code"] for one in note["problems"]] == ["no-module"], note["problems"]


def check_gradients_that_nobody_uses_are_not_steps(place):
    (note,) = [note for note in place.run("by_hand.py --frozen") if note["kind"] == "main"]
    assert note["steps"] == 0 and note["problems"][0]["code"] == "no-optimizer", note["problems"]
    assert "changes no weights after a backward pass" in note["problems"][0]["text"]
