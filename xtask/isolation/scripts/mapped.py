# Writes to files through shared memory maps.
import mmap
import os

from attempt import attempt

for name in ["large.bin", "small.txt", "out/c.txt"]:
    with attempt(name):
        descriptor = os.open(name, os.O_RDWR)
        with mmap.mmap(descriptor, 0) as mapped:
            mapped[:2] = b"mm"
            mapped.flush()
