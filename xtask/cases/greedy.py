#!/usr/bin/env python3
"""Writes greedy.json beside a reference case: the tokens that transformers generates from the case's model without chance.

    python3 xtask/cases/greedy.py crates/training/tests/data/qwen3

Needs torch, transformers and safetensors. A prompt of one token and one of 40 (more than are read at a time, where the model allows it),
each followed by 20 tokens; `gap` is the smallest difference between the two largest logits on the way, so that it shows whether
rounding could change a choice.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM

LENGTHS, NEW = (1, 40), 20


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", attn_implementation="eager").eval()
    vocabulary = model.config.vocab_size
    longest = getattr(model.config, "n_positions", 10**9)
    cases = []
    for length in LENGTHS:
        length = min(length, longest - NEW)
        prompt = torch.randint(0, vocabulary, (1, length), generator=torch.Generator().manual_seed(7))
        made = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, min_new_tokens=NEW, max_new_tokens=NEW,
            eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True,
        )
        largest = [logits[0].topk(2).values for logits in made.logits]
        gap = min((top[0] - top[1]).item() for top in largest)
        cases.append({"prompt": prompt[0].tolist(), "tokens": made.sequences[0, length:].tolist(), "gap": gap})
    with open(f"{folder}/greedy.json", "w") as file:
        file.write(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
