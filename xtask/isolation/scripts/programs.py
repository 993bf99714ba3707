# Runs other programs that write: sed, cp, mv, tee, dd, install, tar.
import subprocess

from attempt import attempt

for line in [
    "sed -i s/small/other/ small.txt",
    "cp package/model.py gone.txt",
    "mv gone.txt ../sibling/taken.txt",
    "echo x | tee -a large.bin ../sibling/a.txt >/dev/null",
    "printf x | dd of=large.bin bs=1 seek=5 conv=notrunc",
    "install -m 600 package/model.py installed.py",
    "tar -cf package.tar package && tar -xf package.tar -C ..",
    "find data -name '*9.txt' -delete",
]:
    with attempt(line):
        subprocess.run(line, shell=True, check=True, capture_output=True)
