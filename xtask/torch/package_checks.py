"""The wheel in a fresh environment where PyTorch is already present: install, lint, analyze and record, in under a minute."""
import json
import os
import shutil
import subprocess
import time

from harness import HERE, ROOT

SECONDS = 60


def check_the_wheel_alone_lints_analyzes_and_records(place):
    seconds = used(place, "fresh")
    if seconds >= SECONDS:
        print(f"    {seconds:.0f} s on a busy machine: once more", flush=True)
        seconds = used(place, "fresh-again")
    assert seconds < SECONDS, f"{seconds:.0f} s from nothing to a recording"
    print(f"    from nothing to a recording in {seconds:.1f} s", flush=True)


def used(place, name):
    """Seconds from an empty folder to a recording."""
    fresh = place.folder / name
    work = place.folder / f"{name}-work"
    work.mkdir()
    shutil.copy(HERE / "scripts/plain.py", work)
    shutil.copy(ROOT / "crates/cli/tests/data/slow_train/train.py", work)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"HEADROOM_HOME": str(place.folder / f"{name}-home"), "PATH": f"{fresh / 'bin'}:{os.environ['PATH']}"}

    def run(*words, code=0):
        done = subprocess.run(words, cwd=work, env=variables, capture_output=True, text=True, timeout=5 * SECONDS)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    begin = time.perf_counter()
    run(place.python, "-m", "venv", fresh)
    # Only PyTorch and what it needs are lent, by a path: headroom itself comes from the wheel.
    (packages,) = fresh.glob("lib/python3*/site-packages")
    lent = subprocess.run(
        [place.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True
    )
    (packages / "lent.pth").write_text(lent.stdout)
    run(fresh / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", place.wheel)
    headroom = shutil.which("headroom", path=variables["PATH"])
    assert headroom == str(fresh / "bin/headroom"), headroom
    assert "TP107" in run("headroom", "lint", "train.py", code=1)
    trace = ROOT / "crates/trace/tests/data/slow.pt.trace.json.gz"
    findings = json.loads(run("headroom", "analyze", "--format", "json", trace))["findings"]
    assert findings[0]["code"] == "TR103", findings
    run("headroom", "record", "--stop", "--output-dir", "recorded", "--", "python", "plain.py", "--steps", "400")
    assert list((work / "recorded").glob("*.json*")), list(work.rglob("*"))
    return time.perf_counter() - begin
