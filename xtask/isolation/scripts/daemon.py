# [later] Forks twice with setsid between, and writes three seconds later.
import os
import time

from attempt import append

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        here = os.getcwd()
        time.sleep(3)
        for path in [f"{here}/late.txt", f"{here}/small.txt", "../sibling/a.txt"]:
            try:
                append(path)
            except OSError:
                pass
    os._exit(0)
os.wait()
print("attempted: a daemon that writes later", flush=True)
