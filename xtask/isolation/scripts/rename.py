# Renames and replaces files and folders, also across folders.
import os

from attempt import attempt

with attempt("a file"):
    os.rename("small.txt", "moved.txt")
with attempt("over another"):
    os.replace("gone.txt", "large.bin")
with attempt("a folder"):
    os.rename("package", "parcel")
with attempt("into a crowded folder"):
    os.rename("moved.txt", "data/moved.txt")
with attempt("out of a crowded folder"):
    os.rename("data/item-0005.txt", "taken.txt")
with attempt("a sibling's file"):
    os.rename("../sibling/a.txt", "../sibling/z.txt")
