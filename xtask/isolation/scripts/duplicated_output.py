# Puts files in place of its standard output, and writes to them as such.
import os

from attempt import attempt

own = os.dup(1)
for name in ["large.bin", "log.txt", "../sibling/a.txt"]:
    with attempt(name):
        target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(target, 1)
        os.system("echo through the standard output")
        os.write(1, b"more\n")
    os.dup2(own, 1)
print("attempted: standard output", flush=True)
