# [system] Writes to the memory of its parent; the bytes are those that are there.
import os

from attempt import attempt

with attempt("memory"):
    parent = os.getppid()
    for line in open(f"/proc/{parent}/maps"):
        if " rw" in line:
            place = int(line.split("-")[0], 16)
            break
    with open(f"/proc/{parent}/mem", "r+b", buffering=0) as memory:
        memory.seek(place)
        byte = memory.read(1)
        memory.seek(place)
        memory.write(byte)
