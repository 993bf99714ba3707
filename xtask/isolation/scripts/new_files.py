# Makes new files and folders in the working folder.
import os

from attempt import attempt

with attempt("a file"):
    open("new.txt", "w").write("new")
with attempt("a folder with a file"):
    os.makedirs("results/deep")
    open("results/deep/weights.pt", "wb").write(bytes(1000))
with attempt("a file in a folder of packages"):
    open("package/cache.bin", "wb").write(b"x")
