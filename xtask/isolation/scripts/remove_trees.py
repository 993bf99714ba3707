# Removes whole trees with shutil.rmtree: a crowded folder, the repository, and then the working folder itself.
import os
import shutil

from attempt import attempt

for name in ["data", ".git", "package", os.getcwd(), "out/../sibling"]:
    with attempt(name):
        shutil.rmtree(name)
shutil.rmtree(".", ignore_errors=True)
