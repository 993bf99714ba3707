# Truncates with os.truncate and ftruncate.
import os

from attempt import attempt

for name in ["small.txt", "large.bin", "data/item-0003.txt", "out/c.txt"]:
    with attempt(f"truncate {name}"):
        os.truncate(name, 1)
with attempt("ftruncate"):
    descriptor = os.open("database.sqlite", os.O_WRONLY)
    os.ftruncate(descriptor, 0)
