# Writes at the exit of the interpreter and in finalizers.
import atexit
import weakref

from attempt import append, attempt


class Saver:
    pass


def save(name):
    with attempt(name):
        append(name)


saver = Saver()
weakref.finalize(saver, save, "finalized.txt")
atexit.register(save, "../sibling/a.txt")
atexit.register(save, "at-exit.txt")
