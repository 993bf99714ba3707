# [system] Kills its parent. Whatever comes of that, the command must end and leave nothing behind.
import os
import signal
import time

print("attempted: to kill the parent", flush=True)
try:
    os.kill(os.getppid(), signal.SIGKILL)
except OSError as error:
    print(f"refused: {error!r}", flush=True)
time.sleep(0.2)
