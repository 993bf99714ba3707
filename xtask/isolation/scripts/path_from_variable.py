# [absolute] Takes the working folder's path from a variable of the user's.
import os
import shutil

from attempt import append, attempt

origin = os.environ["ORIGIN"]
with attempt("append"):
    append(f"{origin}/small.txt")
with attempt("a new file"):
    append(f"{origin}/new.txt")
with attempt("a file of the repository"):
    append(f"{origin}/.git/HEAD")
with attempt("a tree"):
    shutil.rmtree(f"{origin}/data")
