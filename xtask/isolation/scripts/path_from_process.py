# Takes the working folder's path from /proc/self/cwd and from an open folder.
import os

from attempt import append, attempt

with attempt("by /proc/self/cwd"):
    append("/proc/self/cwd/small.txt")
with attempt("by its target"):
    append(os.path.join(os.readlink("/proc/self/cwd"), "new.txt"))
with attempt("by an open folder"):
    folder = os.open(".", os.O_RDONLY)
    append(f"/proc/self/fd/{folder}/../sibling/a.txt")
