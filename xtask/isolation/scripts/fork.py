# Forks children that write, and children of children.
import os

from attempt import append, attempt

for depth in range(3):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        break
    with attempt(f"child {depth}"):
        append(f"forked-{depth}.txt")
        append("../sibling/a.txt")
