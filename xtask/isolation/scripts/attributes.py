# Sets and removes extended attributes.
import os

from attempt import attempt

for name in ["small.txt", "large.bin", "data/item-0008.txt", "../sibling/a.txt"]:
    with attempt(f"set on {name}"):
        os.setxattr(name, "user.suite", b"mine")
with attempt("remove"):
    os.removexattr("package/model.py", "user.kept")
