# Writes, deletes, renames and makes files in folders beside the working folder.
import os
import shutil

from attempt import append, attempt

with attempt("append"):
    append("../sibling/a.txt")
with attempt("delete"):
    os.remove("../sibling/deep/b.txt")
with attempt("rename"):
    os.rename("../sibling/deep", "../sibling/other")
with attempt("make"):
    os.mkdir("../new")
with attempt("remove a tree"):
    shutil.rmtree("../outside")
