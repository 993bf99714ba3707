# Changes modes of files and folders in the working folder and beyond.
import os

from attempt import attempt

for name in ["small.txt", "large.bin", "data", "data/item-0006.txt", ".git/config", "../sibling/a.txt", "out/c.txt"]:
    with attempt(name):
        os.chmod(name, 0o700)
