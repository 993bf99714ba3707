# Makes symbolic links that lead out, then writes through them.
import os

from attempt import append, attempt

with attempt("a relative link"):
    os.symlink("../outside/c.txt", "near")
    append("near")
with attempt("a link to a folder"):
    os.symlink(os.environ["HOME"], "far")
    append("far/notes.txt")
    append("far/new.txt")
with attempt("a loop"):
    os.symlink("loop", "loop")
