"""Messages between the search and the script that it conducts: one JSON object per line over a socket.

`messages.json` beside this file has the fields of every message, and both sides check against it: a message with a field
that is missing, not known or of another type is refused here, and a test of the search compares its own types with the
table. `kind` names the message.
"""
import json
import os
import socket

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "messages.json"), encoding="utf-8") as file:
    TABLE = json.load(file)

VERSION = TABLE["version"]
# Longer paths do not fit into an address of the system: the folder is opened, and named by its number.
MOST_PATH = 100
TYPES = {"integer": int, "number": (int, float), "text": str}


def problem_of(message, direction):
    """Why it is not a message of that direction (`orders` or `reports`), or `None`."""
    kind = message.get("kind") if isinstance(message, dict) else None
    if kind not in TABLE[direction]:
        return f"`{kind}` is none of the {direction}: {', '.join(TABLE[direction])}"
    fields = {key: value for key, value in message.items() if key != "kind"}
    return problem_in(fields, TABLE[direction][kind], kind)


def problem_in(value, wanted, where):
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return f"{where} is not an object"
        for key in sorted(set(value) ^ set(wanted)):
            return f"{where}.{key} is {'not known' if key in value else 'missing'}"
        return next(filter(None, (problem_in(value[key], wanted[key], f"{where}.{key}") for key in wanted)), None)
    if isinstance(wanted, list):
        if not isinstance(value, list):
            return f"{where} is not a list"
        return next(filter(None, (problem_in(item, wanted[0], f"{where}[]") for item in value)), None)
    if wanted == "any" or wanted.endswith("?") and value is None:
        return None
    if wanted == "texts":
        is_right = isinstance(value, list) and all(isinstance(item, str) for item in value)
    else:
        is_right = isinstance(value, TYPES[wanted.rstrip("?")]) and not isinstance(value, bool)
    return None if is_right else f"{where} is {value!r}, not {wanted}"


class Line:
    """The script's end of the socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path if len(os.fsencode(path)) <= MOST_PATH else shortened(path))
        self.reader = self.socket.makefile("r", encoding="utf-8", newline="\n")

    def report(self, kind, **fields):
        message = {"kind": kind, **fields}
        problem = problem_of(message, "reports")
        if problem is not None:
            raise ValueError(problem)
        self.socket.sendall(json.dumps(message, allow_nan=False).encode() + b"\n")

    def order(self):
        """The next order; `None` if the search is gone."""
        text = self.reader.readline()
        if not text:
            return None
        message = json.loads(text)
        problem = problem_of(message, "orders")
        if problem is not None:
            raise ValueError(problem)
        return message


def shortened(path):
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    return f"/proc/self/fd/{folder}/{os.path.basename(path)}"
