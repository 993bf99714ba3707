# [absolute] [system] Makes namespaces of its own, in which it may mount, then takes mounts off and writes.
import os

from attempt import append, attempt, call

NEW_USER, NEW_MOUNTS, DETACH, BIND = 0x10000000, 0x00020000, 2, 4096
origin = os.environ["ORIGIN"]
with attempt("namespaces"):
    call("unshare", NEW_USER | NEW_MOUNTS)
path = origin
while path != "/":
    with attempt(f"off with {path}"):
        call("umount2", path, DETACH)
    path = os.path.dirname(path)
with attempt("bind the root"):
    os.makedirs("root", exist_ok=True)
    call("mount", "/", "root", None, BIND, None)
    append(f"root{origin}/small.txt")
with attempt("write"):
    append(f"{origin}/small.txt")
