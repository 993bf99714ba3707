"""Writes over a large file that lies beside it, by Python and by torch, then trains like `plain.py`."""
import os
import runpy

import torch

if os.path.exists("large.bin"):
    with open("large.bin", "r+b") as file:
        file.write(b"changed")
    torch.save({"step": 0}, "large.bin")
runpy.run_path("plain.py", run_name="__main__")
