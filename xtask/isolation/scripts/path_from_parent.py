# [absolute] [system] Goes through the working folder, the root and the descriptors of its parents.
import os

from attempt import append, attempt

origin, process = os.environ["ORIGIN"], os.getppid()
for generation in range(2):
    with attempt(f"working folder of parent {generation}"):
        append(f"/proc/{process}/cwd/small.txt")
    with attempt(f"root of parent {generation}"):
        append(f"/proc/{process}/root{origin}/new.txt")
    with attempt(f"descriptors of parent {generation}"):
        for name in os.listdir(f"/proc/{process}/fd"):
            if os.path.isdir(f"/proc/{process}/fd/{name}"):
                append(f"/proc/{process}/fd/{name}/new.txt")
    with attempt(f"parent of parent {generation}"):
        status = open(f"/proc/{process}/stat").read()
        process = int(status.rsplit(")", 1)[1].split()[1])
