# Takes the working folder's path from its own source file.
import os

from attempt import append, attempt

here = os.path.dirname(os.path.realpath(__file__))
with attempt("append"):
    append(f"{here}/small.txt")
with attempt("delete"):
    os.remove(f"{here}/gone.txt")
