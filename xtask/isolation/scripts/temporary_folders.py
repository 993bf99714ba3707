# [system] Leaves files in /tmp, /var/tmp, /dev/shm and in the folder for temporary files.
import os
import tempfile

from attempt import append, attempt

mark = os.environ["HEADROOM_SUITE_MARK"]
for folder in ["/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir()]:
    with attempt(folder):
        append(f"{folder}/{mark}-file")
        os.mkdir(f"{folder}/{mark}-folder")
        append(f"{folder}/{mark}-folder/file")
