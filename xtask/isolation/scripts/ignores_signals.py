# [later] Starts a child in another session that ignores every signal it can, and writes three seconds later.
import os
import signal
import time

from attempt import append

reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    os.write(writer, b"ready")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        time.sleep(0.05)
    for path in ["late.txt", "../sibling/a.txt"]:
        try:
            append(path)
        except OSError:
            pass
    os._exit(0)
os.read(reader, 5)
print("attempted: a child that ignores signals", flush=True)
