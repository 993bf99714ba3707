# Makes hard links, then writes through them.
import os

from attempt import append, attempt

for number, name in enumerate(["small.txt", "large.bin", "data/item-0009.txt", "../sibling/a.txt", "out/c.txt"]):
    with attempt(name):
        os.link(name, f"hard-{number}")
        append(f"hard-{number}")
