# Punches a hole into a large file, and makes it longer with fallocate.
import ctypes
import os

from attempt import attempt, call

KEEP_SIZE, PUNCH_HOLE = 1, 2
for name in ["large.bin", "../sibling/a.txt"]:
    with attempt(f"a hole in {name}"):
        descriptor = os.open(name, os.O_RDWR)
        call("fallocate", descriptor, KEEP_SIZE | PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(4096))
    with attempt(f"a longer {name}"):
        os.posix_fallocate(os.open(name, os.O_RDWR), 0, 10 << 20)
