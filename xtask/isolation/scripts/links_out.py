# Writes, deletes and makes files through links of the user's that lead out of the working folder.
import os

from attempt import append, attempt

with attempt("a link to a file in the home folder"):
    append("notes")
with attempt("a file behind a link to a folder"):
    append("out/c.txt")
with attempt("a new file there"):
    append("out/new.txt")
with attempt("deleting there"):
    os.remove("out/d.txt")
