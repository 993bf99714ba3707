"""The README's commands that need PyTorch, with real PyTorch: those that its test names for this stage, and its recording."""
import os
import shutil
import subprocess
from pathlib import Path

from harness import HERE, ROOT

TABLE = ROOT / "crates/cli/tests/data/readme_elsewhere.tsv"
SHORT = "--steps 10 --warmup-steps 2 --rounds 2 --time-limit 150 --only loader-workers"


def listed():
    rows = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [command for command, stage, _ in rows if stage == "torch"]


def check_commands_of_the_readme_run_with_real_pytorch(place):
    page = (ROOT / "README.md").read_text()
    recording = "headroom record --stop -- python train.py"
    commands = [*listed(), recording]
    assert len(commands) >= 2, commands
    work = place.folder / "readme"
    (work / "bin").mkdir(parents=True)
    shutil.copy(HERE / "scripts/plain.py", work / "train.py")
    os.symlink(place.headroom, work / "bin/headroom")
    python = work / "bin/python"
    python.write_text(f'#!/bin/sh\nexec {place.python} "$@"\n')
    python.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{work / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HEADROOM_HOME": str(work / "home"),
        "OMP_NUM_THREADS": "1",
    }
    for command in commands:
        assert command in page, f"the page has no `{command}` any more"
        words = command.replace("train.py", "train.py --steps 400 --collate-seconds 0.02")
        words = words.replace("optimize", f"optimize {SHORT}")
        done = subprocess.run(words, shell=True, env=environment, cwd=work, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.stdout, command
    assert list(Path(work / "runs").glob("*-recorded/*.pt.trace.json")), "the recording is there"
