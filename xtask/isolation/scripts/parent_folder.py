# Goes to the parent folder and writes there.
import os

from attempt import append, attempt

here = os.path.basename(os.getcwd())
with attempt("go up"):
    os.chdir("..")
with attempt("a sibling's file"):
    append("sibling/a.txt")
with attempt("back into the working folder"):
    append(f"{here}/small.txt")
with attempt("a new file"):
    append("new.txt")
