# [absolute] [system] Joins the namespaces of process 1 and of its parent, then writes.
import os

from attempt import append, attempt, call

for process in ["1", str(os.getppid())]:
    for kind in ["user", "mnt", "pid"]:
        with attempt(f"{kind} of {process}"):
            call("setns", os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY), 0)
with attempt("write"):
    append(os.environ["ORIGIN"] + "/small.txt")
