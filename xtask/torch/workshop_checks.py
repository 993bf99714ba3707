"""The workshop's commands that need PyTorch, with real PyTorch: those of its blocks marked `torch`, in order, by the runner of its answers."""
import json
import runpy
import shutil
import subprocess
import sys

from harness import ROOT

RUNNER = ROOT / "xtask/workshop/run.py"
PAGE = "6-pytorch"


def check_the_part_on_pytorch_runs_with_real_pytorch(place):
    out, pages = place.folder / "workshop.json", place.folder / "pages"
    shutil.copytree(ROOT / "docs/workshop", pages)
    page = pages / f"{PAGE}.md"
    # Two minutes are for people; here it is enough that the command runs.
    page.write_text(page.read_text().replace("--time-limit 2m", "--time-limit 40s"))
    words = [sys.executable, RUNNER, "--headroom", place.headroom, "--torch", place.python, "--pages", pages]
    words += ["--out", out, "--only", PAGE, "--timeout", "400", "--folder", place.folder / "workshop"]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    stored = {entry["command"]: entry for entry in json.loads(out.read_text())["outputs"]}
    commands = runpy.run_path(str(RUNNER))["commands"](page)
    wanted = [line for marks, line in commands if "torch" in marks]
    assert len(wanted) >= 5, wanted
    for command in wanted:
        assert stored[command]["exit"] in (0, 1) and stored[command]["stdout"], command
