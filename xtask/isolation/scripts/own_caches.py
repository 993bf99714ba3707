# Fills and empties caches in the home folder, by their fixed paths.
import os
import shutil

from attempt import append, attempt

cache = os.path.join(os.environ["HOME"], ".cache")
with attempt("a new file"):
    os.makedirs(f"{cache}/tool", exist_ok=True)
    append(f"{cache}/tool/index")
with attempt("a model that was there"):
    append(f"{cache}/huggingface/model")
with attempt("empty it"):
    shutil.rmtree(f"{cache}/huggingface")
with attempt("another cache"):
    os.makedirs(os.path.join(os.environ["HOME"], ".triton"), exist_ok=True)
    append(os.path.join(os.environ["HOME"], ".triton/kernel"))
