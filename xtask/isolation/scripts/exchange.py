# Exchanges two names at once with renameat2.
from attempt import attempt, call

HERE, EXCHANGE = -100, 2
with attempt("two files"):
    call("renameat2", HERE, "small.txt", HERE, "gone.txt", EXCHANGE)
with attempt("a file here and one beside"):
    call("renameat2", HERE, "small.txt", HERE, "../sibling/a.txt", EXCHANGE)
