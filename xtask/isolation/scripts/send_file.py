# Fills a file with sendfile.
import os

from attempt import attempt

for name in ["large.bin", "out/c.txt"]:
    with attempt(name):
        source, target = os.open("package/model.py", os.O_RDONLY), os.open(name, os.O_WRONLY)
        os.sendfile(target, source, 0, 4)
