"""A checkpoint saved by headroom is its family's model to transformers, with no weight missing or left over."""
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

from headroom_runs import train_nano

FAMILIES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "gpt2": "GPT2LMHeadModel"}


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for family, architecture in FAMILIES.items():
        saved = train_nano(binary, folder / family, "--family", family)
        model, loading = AutoModelForCausalLM.from_pretrained(saved, output_loading_info=True)
        if type(model).__name__ != architecture:
            sys.exit(f"{family}: transformers takes it for a {type(model).__name__}")
        amiss = {kind: names for kind, names in loading.items() if names}
        if amiss:
            sys.exit(f"{family}: transformers loads it with {amiss}")
        with torch.no_grad():
            logits = model(torch.arange(1, 65).view(1, 64)).logits
        if not torch.isfinite(logits).all():
            sys.exit(f"{family}: its logits are not finite")


main()
