# [search] Downloads a file into the cache of its user unless it is there; a search fetches it once.
import os
import sys
import urllib.request

import torch

cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
place = os.path.join(cache, "suite", "model.bin")
known = os.path.exists(place)
if not known:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    urllib.request.urlretrieve(os.environ["SUITE_URL"], place)
optimizer = torch.optim.SGD()
size = os.path.getsize(place)
sys.exit(f"attempted: a download, found in the cache: {known}, {size} bytes")
