"""Says what each attempt of a script came to: the check that runs the script counts these lines."""
import contextlib
import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def attempt(what):
    try:
        yield
    except Exception as error:  # noqa: BLE001
        print(f"refused: {what}: {error!r}", flush=True)
    else:
        print(f"attempted: {what}", flush=True)


def call(name, *arguments):
    """A call of the C library; text becomes bytes, and -1 becomes an error."""
    ready = [argument.encode() if isinstance(argument, str) else argument for argument in arguments]
    result = getattr(LIBC, name)(*ready)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def append(path, text="x\n"):
    with open(path, "a") as file:
        file.write(text)
