# Takes the working folder's path from PWD, which a shell sets.
import os

from attempt import append, attempt

with attempt("append"):
    append(os.environ["PWD"] + "/small.txt")
with attempt("a new file"):
    append(os.environ["PWD"] + "/new.txt")
