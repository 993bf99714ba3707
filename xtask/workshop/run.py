"""Runs the commands of docs/workshop in the order of its pages and keeps what each printed, for the pages' answers.

    python3 xtask/workshop/run.py --headroom BIN --machine cpu --out docs/workshop/results/cpu.json

It needs Python's standard library alone, so that it also runs on a machine that has no Rust. All commands share one working folder and one
registry of runs, because later pages compare with runs of earlier ones. The result file is written anew after every command: a run that was
interrupted keeps the outputs that it has. A GPU's outputs may be had in two goes that share a folder:

    python3 xtask/workshop/run.py --headroom BIN --machine h200 --out h200.json --folder place --total 290
    python3 xtask/workshop/run.py --headroom BIN --machine h200 --out h200.json --folder place --only 6-pytorch --torch python3"""
import argparse
import datetime
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs/workshop"
# Exit code of a command that ran past its limit, as `timeout` has it.
TIMED_OUT = 124


def pages(folder):
    """README first, the numbered parts in order, then the others by name."""

    def place(page):
        return (page.name != "README.md", not page.name[0].isdigit(), page.name)

    return sorted(folder.glob("*.md"), key=place)


def commands(page):
    """Marks of the block (`cpu`, `h200`, `torch`) and the line, for every command of the page's `sh` blocks."""
    found, marks = [], None
    for line in page.read_text().splitlines():
        line = line.strip()
        if line.startswith("```"):
            words = line[3:].split()
            marks = set(words[1:]) if marks is None and words[:1] == ["sh"] else None
        elif marks is not None:
            line = line.split(" #")[0].strip()
            if line and not line.startswith("#"):
                found.append((marks, line))
    return found


def belongs(marks, machine, torch):
    named = marks & {"cpu", "h200"}
    return (not named or machine in named) and ("torch" not in marks or torch)


class Runner:
    def __init__(self, arguments):
        self.headroom = Path(arguments.headroom).resolve()
        self.arguments = arguments
        self.folder = Path(arguments.folder or tempfile.mkdtemp(prefix="workshop-")).resolve()
        self.place = self.folder / "place"
        binaries = self.folder / "bin"
        for folder in (self.place, self.folder / "home", binaries):
            folder.mkdir(parents=True, exist_ok=True)
        link = binaries / "headroom"
        link.unlink(missing_ok=True)
        link.symlink_to(self.headroom)
        if arguments.torch:
            for name in ("python", "python3"):
                script = binaries / name
                script.write_text(f'#!/bin/sh\nexec "{Path(arguments.torch).absolute()}" "$@"\n')
                script.chmod(0o755)
        for script in arguments.pages.glob("*.py"):
            shutil.copy(script, self.place)
        self.environment = os.environ | {
            "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
            "HEADROOM_HOME": str(self.folder / "home"),
            "NO_COLOR": "1",
        }
        self.takes_device = {}

    def shell(self, line, seconds):
        """Exit code and standard output; a command past its limit is ended with everything that it started."""
        child = subprocess.Popen(
            ["sh", "-c", line],
            cwd=self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, said = child.communicate(timeout=seconds)
            code = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            printed, said = child.communicate()
            code = TIMED_OUT
        except BaseException:
            # Its group is another one than ours: Ctrl-C and a request to terminate do not reach it.
            os.killpg(child.pid, signal.SIGKILL)
            raise
        if code not in (0, 1):
            print(said[-2000:], file=sys.stderr)
        return code, self.without_paths(printed)

    def without_paths(self, text):
        for folder, shown in ((self.place, "."), (self.folder, "~")):
            text = text.replace(str(folder) + "/", shown + "/").replace(str(folder), shown)
        # Traces carry the host's name and the process's number in their own.
        return re.sub(rf"\b{re.escape(socket.gethostname())}\.\d+\.", "host.1.", text)

    def line_for(self, command):
        """The command as this machine runs it: on a GPU with `--device cuda`, where its subcommand takes a device and names none."""
        words = command.split()
        if self.arguments.machine == "cpu" or words[0] != "headroom" or "--device" in words:
            return command
        subcommand = words[1]
        if subcommand not in self.takes_device:
            _, shown = self.shell(f"headroom {subcommand} --help", 60)
            self.takes_device[subcommand] = "--device " in shown
        before, separator, after = command.partition(" -- ")
        # A script chooses its own device.
        return f"{before} --device cuda" if self.takes_device[subcommand] and not separator else command

    def about(self):
        _, version = self.shell("headroom --version", 60)
        lines = version.splitlines()
        wanted = "cpu: " if self.arguments.machine == "cpu" else "cuda:0: "
        named = [line.removeprefix(wanted) for line in lines if line.startswith(wanted)]
        return {
            "machine": named[0] if named else "unknown",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "headroom": lines[0].removeprefix("headroom ") if lines else "unknown",
        }


def kept(path, still_there):
    """Outputs of an earlier run whose commands the pages still have."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())["outputs"]
    return {entry["command"]: entry for entry in stored if entry["command"] in still_there}


def write(path, about, outputs, order):
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = [outputs[command] for command in order if command in outputs]
    text = json.dumps(about | {"outputs": listed}, indent=1, ensure_ascii=False) + "\n"
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text)
    temporary.replace(path)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", required=True, metavar="BIN", help="the binary to run")
    parser.add_argument("--machine", choices=["cpu", "h200"], default="cpu")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the result file")
    parser.add_argument("--only", action="append", metavar="PAGE", help="run this page alone (6-pytorch); the file keeps the others' outputs")
    parser.add_argument("--torch", metavar="PYTHON", help="also run the blocks marked torch, with this Python")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit of one command")
    parser.add_argument("--total", type=float, metavar="SECONDS", help="start no command after so long")
    parser.add_argument("--folder", metavar="DIR", help="work here and leave the runs; without it a temporary folder is used and removed")
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="DIR", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runner = Runner(asked)
    # A command that stands on two pages is run once, where it stands first.
    todo, seen, order = [], set(), []
    for page in pages(asked.pages):
        for marks, command in commands(page):
            order.append(command)
            if command not in seen and belongs(marks, asked.machine, asked.torch) and (not asked.only or page.stem in asked.only):
                seen.add(command)
                todo.append((page.stem, command))
    if not todo:
        sys.exit(f"no command to run: the pages are {', '.join(page.stem for page in pages(asked.pages))}")
    order = list(dict.fromkeys(order))
    outputs = kept(asked.out, set(order))
    about = runner.about()
    begin, ended = time.monotonic(), []
    for stem, command in todo:
        if asked.total and time.monotonic() - begin > asked.total:
            ended.append(f"{command}: not started, {asked.total:.0f} s were over")
            continue
        line, start = runner.line_for(command), time.monotonic()
        left = asked.total - (start - begin) if asked.total else asked.timeout
        code, printed = runner.shell(line, min(asked.timeout, max(left, 1)))
        seconds = time.monotonic() - start
        print(f"{stem}: {line}: exit {code}, {seconds:.1f} s", file=sys.stderr, flush=True)
        if code not in (0, 1):
            ended.append(f"{command}: exit {code}")
        entry = {"command": command, "exit": code, "stdout": printed}
        outputs[command] = entry if line == command else entry | {"ran": line}
        write(asked.out, about, outputs, order)
    if not asked.folder:
        shutil.rmtree(runner.folder, ignore_errors=True)
    print(f"{len(todo)} commands in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if ended:
        sys.exit("\n".join(["these did not end well:", *ended]))


if __name__ == "__main__":
    main()
