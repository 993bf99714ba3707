# [absolute] [system] Opens a file by its number in the file system, past all folders.
import ctypes
import os

from attempt import attempt, call

HERE = -100


class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


with attempt("by number"):
    handle, mount = Handle(size=128), ctypes.c_int()
    call("name_to_handle_at", HERE, os.environ["ORIGIN"] + "/small.txt", ctypes.byref(handle), ctypes.byref(mount), 0)
    folder = os.open("/", os.O_RDONLY)
    descriptor = call("open_by_handle_at", folder, ctypes.byref(handle), os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b"x")
