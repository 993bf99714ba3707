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
        work = self.scripts(name)
        if beside is not None:
            beside(work)
        words = ["optimize", *options.split(), "--", self.python, *command.split()]
        done = self.command(name, work, *words)
        printed = done.stdout + done.stderr
        assert done.returncode == code, f"{command}: {done.returncode}\n{printed}"
        file = work / "runs" / f"optimize-{Path(command.split()[0]).stem}" / "validation.json"
        record = json.loads(file.read_text()) if file.exists() else None
        if record is not None:
            fits_schema(record)
        return work, record, printed

    def scripts(self, name):
        """A copy of the scripts."""
        work = self.folder / name
        shutil.copytree(HERE / "scripts", work, ignore=shutil.ignore_patterns("__pycache__"))
        return work

    def environment(self, name):
        return {**os.environ, "HEADROOM_HOME": str(self.folder / f"{name}-home"), "OMP_NUM_THREADS": "1"}

    def command(self, name, work, *words):
        """Any command of `headroom`, with the registry of that name."""
        words = [self.headroom, *words]
        return subprocess.run(words, env=self.environment(name), cwd=work, capture_output=True, text=True, timeout=500)

    def started(self, name, options, command, until):
        """`headroom optimize` as soon as it has printed these words: the folder, and the process."""
        work = self.scripts(name)
        words = [self.headroom, "optimize", *options.split(), "--", self.python, *command.split()]
        pipe = subprocess.PIPE
        child = subprocess.Popen(words, env=self.environment(name), cwd=work, stdout=pipe, stderr=pipe, text=True)
        seen = ""
        for line in child.stderr:
            seen += line
            if until in line:
                return work, child
        raise AssertionError(f"it ended without saying {until!r}: {seen}")


def fits_schema(record, schema=None, place="validation.json", whole=None):
    """The record has the keys of docs/schemas/optimize.json, and no others."""
    if whole is None:
        whole = json.loads((ROOT / "docs/schemas/optimize.json").read_text())
        schema = whole["$defs"]["ScriptRecord"]
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) == 1 and record is not None:
        return fits_schema(record, choices[0], place, whole)
    if isinstance(record, dict) and "properties" in schema:
        keys, known = set(record), set(schema["properties"])
        assert keys <= known and keys >= set(schema["required"]), f"{place}: {sorted(keys ^ known)}"
        for key, value in record.items():
            fits_schema(value, schema["properties"][key], f"{place}.{key}", whole)
    elif isinstance(record, dict) and isinstance(schema.get("additionalProperties"), dict):
        for key, value in record.items():
            fits_schema(value, schema["additionalProperties"], f"{place}.{key}", whole)
    elif isinstance(record, list) and "items" in schema:
        for value in record:
            fits_schema(value, schema["items"], place, whole)


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
