# Changes a folder of more than a thousand entries: deletes, adds, writes over, and sorts into subfolders.
import os

from attempt import append, attempt

with attempt("delete every second"):
    for name in sorted(os.listdir("data"))[::2]:
        os.remove(f"data/{name}")
with attempt("add"):
    append("data/new.txt")
with attempt("write over"):
    append("data/item-0011.txt")
with attempt("sort"):
    os.mkdir("data/part")
    os.rename("data/item-0013.txt", "data/part/item.txt")
