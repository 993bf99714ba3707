# [absolute] [system] Leaves a changed root with an open folder from before.
import os

from attempt import append, attempt

origin = os.environ["ORIGIN"]
with attempt("change the root and leave it"):
    os.makedirs("cell", exist_ok=True)
    before = os.open(".", os.O_RDONLY)
    os.chroot("cell")
    os.fchdir(before)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
with attempt("write"):
    append(f"{origin}/small.txt")
