# [absolute] [system] Mounts folders over others and over itself, then writes beneath them.
import os

from attempt import append, attempt, call

BIND, REMOUNT = 4096, 32
origin = os.environ["ORIGIN"]
os.makedirs("mounted", exist_ok=True)
with attempt("a folder bound elsewhere"):
    call("mount", origin, "mounted", None, BIND, None)
    append("mounted/small.txt")
with attempt("the root made writable"):
    call("mount", "none", "/", None, BIND | REMOUNT, None)
with attempt("a new proc"):
    call("mount", "proc", "mounted", "proc", 0, None)
with attempt("write"):
    append(f"{origin}/small.txt")
