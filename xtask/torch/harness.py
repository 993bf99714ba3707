"""Runs a script with the hook in front, as `headroom optimize` does, and reads its notes."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOOK = ROOT / "crates/scripts/python"


class Place:
    """A hook's folder, one for all runs, and a folder for each script."""

    def __init__(self, python, headroom=None, wheel=None):
        self.python = python
        self.wheel = wheel and os.path.abspath(wheel)
        self.headroom = headroom and os.path.abspath(headroom)
        self.folder = Path(tempfile.mkdtemp(prefix="headroom-torch-"))
        self.hook = self.folder / "hook"
        shutil.copytree(HOOK, self.hook, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (HERE / "planted").glob("*.py"):
            shutil.copy(file, self.hook / "headroom_hook/remedies")
        self.work = self.folder / "work"
        shutil.copytree(HERE / "scripts", self.work, ignore=shutil.ignore_patterns("__pycache__"))
        self.before = sorted(self.work.rglob("*"))
        self.runs = 0
        self.lock = threading.Lock()

    def remove(self):
        shutil.rmtree(self.folder)

    def run(self, command, remedies="", launcher=(), path=(), fails=False, **variables):
        """`command` is a script and its arguments; the notes by process that took steps, then those without."""
        with self.lock:
            self.runs += 1
            notes = self.folder / f"notes{self.runs}"
        notes.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.hook), *map(str, path)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "HEADROOM_MEASURE_NOTES": str(notes),
            "HEADROOM_MEASURE_WARMUP": "2",
            "HEADROOM_MEASURE_TIMED": "6",
            "HEADROOM_MEASURE_SEED": "7",
            "HEADROOM_REMEDIES": remedies,
            **{f"HEADROOM_{name}": value for name, value in variables.items()},
        }
        begin = time.perf_counter()
        words = [self.python, *launcher, *command.split()]
        done = subprocess.run(words, env=environment, cwd=self.work, capture_output=True, text=True, timeout=400)
        seconds = time.perf_counter() - begin
        if "--verbose" in sys.argv:
            print(f"    {seconds:5.1f} s  {command}  {remedies}", flush=True)
        assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert sorted(self.work.rglob("*")) == self.before, "something is left behind in the script's folder"
        found = [json.loads(file.read_text()) for file in sorted(notes.glob("measure.*.json"))]
        found.sort(key=lambda note: (-note["steps"], note["rank"] or 0))
        for note in found:
            note["output"] = done.stdout + done.stderr
        return found

    def note(self, command, remedies="", **named):
        """The one note of a script that trains in one process."""
        notes = [note for note in self.run(command, remedies, **named) if note["steps"]]
        assert len(notes) == 1, [(note["kind"], note["steps"]) for note in notes]
        note = notes[0]
        assert note["error"] is None, note["error"]
        for name, outcome in note["remedies"].items():
            assert not outcome["errors"], (name, outcome["errors"])
        return note


    def optimize(self, name, options, command, code=0, beside=None):
        """`headroom optimize` in a copy of the scripts of its own: the folder, its record, and what was printed.

        `beside` is called with the folder before: it puts other files there.
        """
        work = self.folder / name
        shutil.copytree(HERE / "scripts", work, ignore=shutil.ignore_patterns("__pycache__"))
        if beside is not None:
            beside(work)
        environment = {**os.environ, "HEADROOM_HOME": str(self.folder / f"{name}-home"), "OMP_NUM_THREADS": "1"}
        words = [self.headroom, "optimize", *options.split(), "--", self.python, *command.split()]
        done = subprocess.run(words, env=environment, cwd=work, capture_output=True, text=True, timeout=500)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"{command}: {done.returncode}\n{printed}"
        record = work / "runs" / f"optimize-{Path(command.split()[0]).stem}" / "validation.json"
        return work, json.loads(record.read_text()) if record.exists() else None, printed


def unchanged(work):
    """Whether the scripts are as they were and nothing but results lies beside them."""
    ours = {file.relative_to(work): file.read_bytes() for file in work.rglob("*") if file.is_file()}
    ours = {path: text for path, text in ours.items() if path.parts[0] != "runs"}
    scripts = HERE / "scripts"
    theirs = {file.relative_to(scripts): file.read_bytes() for file in scripts.rglob("*.py")}
    return ours == theirs


def distance(one, other):
    """The largest relative difference between two runs' losses, over the steps that both have."""
    flat = [[value for step in note["losses"] for value in step] for note in (one, other)]
    pairs = list(zip(*flat))
    assert pairs, "no losses"
    return max(abs(a - b) / max(abs(a), abs(b), 1e-12) for a, b in pairs)


def did(note, name):
    return "; ".join(note["remedies"][name]["did"])
