"""Checks of a conducted script with real PyTorch: this file is the search, at the other end of the socket."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

COUNTED = {"kind": "block", "settle": 2, "steps": 6}


class Search:
    """Runs a script that takes orders."""

    def __init__(self, place, command, hook=None):
        self.folder = Path(tempfile.mkdtemp(prefix="headroom-conducted-"))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.folder / "socket"))
        self.listener.listen(1)
        self.listener.settimeout(120)
        environment = {
            **os.environ,
            "PYTHONPATH": str(hook or place.hook),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "HEADROOM_CONDUCTOR": str(self.folder / "socket"),
        }
        words = [place.python, *command.split()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(words, env=environment, cwd=place.work, **pipes)
        self.line, _ = self.listener.accept()
        self.line.settimeout(120)
        self.reader = self.line.makefile("r")
        self.number = 0

    def tell(self, **order):
        self.number += 1
        numbered = {"number": self.number, **order} if order["kind"] != "finish" else order
        self.line.sendall(json.dumps(numbered).encode() + b"\n")

    def hear(self):
        text = self.reader.readline()
        return json.loads(text) if text else None

    def block(self, *on):
        self.tell(on=list(on), **COUNTED)
        return self.hear()

    def close(self):
        output, _ = self.process.communicate(timeout=60)
        self.line.close()
        self.listener.close()
        shutil.rmtree(self.folder)
        return output


@contextlib.contextmanager
def conducted(place, command, hook=None):
    search = Search(place, command, hook)
    try:
        yield search
    finally:
        search.process.kill()
        search.process.wait()


def check_a_script_takes_orders_between_its_steps(place):
    with conducted(place, "plain.py --steps 100000 --collate-seconds 0.002") as search:
        hello = search.hear()
        assert hello["kind"] == "hello" and hello["version"] == 1 and hello["device"] == "cpu", hello
        offers = {offer["name"]: offer for offer in hello["switches"]}
        assert offers["zero-grad-none"] == {
            "name": "zero-grad-none", "where": "between_steps", "settle": offers["zero-grad-none"]["settle"], "obstacle": None
        }, offers
        assert offers["loader-workers"]["where"] == "start" and "CUDA" in offers["tf32"]["obstacle"], offers
        plain = search.block()
        assert plain["kind"] == "block" and len(plain["steps"]) == 6 and plain["void"] is None, plain
        assert plain["measured_on"] == "host" and len({step["shape"] for step in plain["steps"]}) == 1, plain
        assert all(step["seconds"] > 0.002 and step["apart"] is None for step in plain["steps"]), plain
        for names in (["zero-grad-none"], ["zero-grad-none", "foreach-optimizer"], ["foreach-optimizer"], []):
            block = search.block(*names)
            assert block["number"] == search.number and block["void"] is None, (names, block)
            assert block["steps"][0]["shape"] == plain["steps"][0]["shape"]
        search.tell(kind="shadow", on=[], switch="foreach-optimizer")
        answer = search.hear()
        assert answer["kind"] == "shadow" and answer["verdict"] == "same", answer
        search.tell(kind="finish")
        assert search.hear() is None
        search.process.wait(timeout=30)
        output = search.close()
    assert search.process.returncode == 0 and "the script is done" not in output, output


def check_a_conducted_script_says_when_it_ends_and_why(place):
    with conducted(place, "plain.py --steps 9 --collate-seconds 0") as search:
        assert search.hear()["kind"] == "hello"
        ended = search.block()
        assert ended == {"kind": "ended", "steps": 9}, ended
    with conducted(place, "plain.py --steps 1000 --collate-seconds 0 --fail-at 12") as search:
        search.hear()
        search.block()
        failed = search.block()
        assert failed["kind"] == "failed" and failed["switch"] is None and failed["text"], failed


def check_a_misspelt_order_and_a_switch_that_raises_end_the_process(place):
    with conducted(place, "plain.py --steps 100000 --collate-seconds 0") as search:
        search.hear()
        search.tell(on=[], kind="block", settle=1, step=3)
        failed = search.hear()
        assert failed["kind"] == "failed" and "block.step is not known" in failed["text"], failed
    hook = place.folder / "hook-raises"
    shutil.copytree(place.hook, hook)
    remedy = hook / "headroom_hook/remedies/gc_frozen.py"
    remedy.write_text(remedy.read_text() + "\n\ndef on(context):\n    raise RuntimeError('planted')\n")
    with conducted(place, "plain.py --steps 100000 --collate-seconds 0", hook) as search:
        search.hear()
        failed = search.block("gc-frozen")
        assert failed == {"kind": "failed", "switch": "gc-frozen", "text": "RuntimeError: planted"}, failed
