# [absolute] [system] Takes mounts off the working folder and its parents, then writes beneath them.
import os

from attempt import append, attempt, call

DETACH = 2
path = os.environ["ORIGIN"]
folders = [path]
while path != "/":
    path = os.path.dirname(path)
    folders.append(path)
for folder in folders:
    with attempt(folder):
        call("umount2", folder, DETACH)
with attempt("write"):
    append(os.environ["ORIGIN"] + "/small.txt")
