# Leaves folders that may be neither read nor entered, here and among temporary files.
import os
import tempfile

from attempt import append, attempt

for parent in [".", tempfile.mkdtemp()]:
    with attempt(parent):
        os.makedirs(f"{parent}/locked/deep")
        append(f"{parent}/locked/deep/file")
        os.chmod(f"{parent}/locked/deep", 0)
        os.chmod(f"{parent}/locked", 0o500)
