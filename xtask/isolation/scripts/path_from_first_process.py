# [absolute] [system] Goes through /proc/1/cwd and /proc/1/root.
import os

from attempt import append, attempt

origin = os.environ["ORIGIN"]
with attempt("by the working folder of process 1"):
    append(f"/proc/1/cwd{origin}/small.txt")
with attempt("by the root of process 1"):
    append(f"/proc/1/root{origin}/new.txt")
with attempt("by its descriptors"):
    for name in os.listdir("/proc/1/fd"):
        append(f"/proc/1/fd/{name}{origin}/new.txt")
