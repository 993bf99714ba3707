# Takes an absolute path in the working folder from its arguments.
import os
import sys

from attempt import append, attempt

with attempt("append"):
    append(sys.argv[1])
with attempt("a file beside it"):
    append(os.path.join(os.path.dirname(sys.argv[1]), "new.txt"))
