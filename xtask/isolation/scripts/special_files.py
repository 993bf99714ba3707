# Makes a FIFO and a socket in the working folder.
import os
import socket

from attempt import attempt

with attempt("a FIFO"):
    os.mkfifo("pipe")
with attempt("a socket"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("service.sock")
    listener.listen()
with attempt("a socket beside"):
    other = socket.socket(socket.AF_UNIX)
    other.bind("../sibling/service.sock")
