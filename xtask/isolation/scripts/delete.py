# Deletes files, a link and a folder.
import os

from attempt import attempt

for name in ["small.txt", "large.bin", "database.sqlite", "data/item-0004.txt", "notes", ".git/HEAD"]:
    with attempt(name):
        os.remove(name)
with attempt("a folder"):
    os.remove("empty/only.txt")
    os.rmdir("empty")
