"""A checkpoint saved by headroom is a LlamaForCausalLM to transformers, with no weight missing or left over."""
import pathlib
import sys

import torch
from transformers import LlamaForCausalLM

from headroom_runs import train_nano


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    saved = train_nano(binary, folder)
    model, loading = LlamaForCausalLM.from_pretrained(saved, output_loading_info=True)
    amiss = {kind: names for kind, names in loading.items() if names}
    if amiss:
        sys.exit(f"transformers loads it with {amiss}")
    with torch.no_grad():
        logits = model(torch.arange(1, 65).view(1, 64)).logits
    if not torch.isfinite(logits).all():
        sys.exit("its logits are not finite")


main()
