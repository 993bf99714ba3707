#!/usr/bin/env python3
"""Writes the reference case of a family: what transformers and PyTorch make of a small model, a batch and AdamW.

    python3 xtask/cases/families.py qwen3 crates/training/tests/data/qwen3

Needs torch, transformers and safetensors. The folder gets config.json and model.safetensors as transformers saves them;
expected.safetensors with the batch, its logits, every gradient (`grad.`) and the weights after one step and five (`after1.`,
`after5.`); and losses.json with the optimizer and the loss before each of 20 steps on that batch. Norms and biases are drawn
too, so that one which is left out shows.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import GPT2Config, LlamaConfig, Qwen3Config

STEPS = 20
ADAMW = {"lr": 3e-4, "betas": (0.9, 0.999), "weight_decay": 0.01}
SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2}

# For each: the configuration, batch and sequence, the largest norm of the gradients (0 is off), and AdamW's eps.
FAMILIES = {
    # Heads of 16 of a width of 32: they do not follow from it.
    "qwen3": (Qwen3Config(**SIZES, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True, rope_theta=1e6), (3, 20), 0.5, 1e-8),
    # Rotations of all three kinds: kept, divided by the factor, and between.
    "llama3": (
        LlamaConfig(
            **SIZES,
            head_dim=8,
            max_position_embeddings=512,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
        (2, 24),
        0.0,
        1e-8,
    ),
    # More positions than the batch has. A bias of keys changes no softmax: its gradient is rounding alone, which a small eps would turn into steps.
    "gpt2": (
        GPT2Config(
            vocab_size=97, n_positions=40, n_embd=32, n_layer=2, n_head=4, bos_token_id=96, eos_token_id=96,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        ),
        (3, 20),
        0.5,
        1e-6,
    ),
}


def drawn(config):
    """The model with every parameter drawn: what would be one or zero differs by a little, the rest has a spread of 0.05."""
    config._attn_implementation = "eager"
    model = getattr(transformers, config.architectures[0])(config).float().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if parameter.dim() == 1 and name.endswith(".weight") else 0.0
            spread = 0.1 if parameter.dim() == 1 else 0.05
            parameter.copy_(centre + spread * torch.randn_like(parameter))
    return model


def main():
    family, folder = sys.argv[1:]
    torch.manual_seed(19)
    torch.set_num_threads(1)
    config, (batch, seq), clip, eps = FAMILIES[family]
    adamw = ADAMW | {"eps": eps}
    config.architectures = [{"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"}[config.model_type]]
    model = drawn(config)
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    os.unlink(os.path.join(folder, "generation_config.json"))

    tokens = torch.randint(0, config.vocab_size, (batch, seq + 1))
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    expected = {"input_ids": ids, "targets": targets}
    optimizer = torch.optim.AdamW(model.parameters(), **adamw)
    losses = []
    for step in range(STEPS):
        logits = model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))
        optimizer.zero_grad()
        loss.backward()
        named = dict(model.named_parameters())
        if step == 0:
            expected["logits"] = logits.detach().clone()
            expected |= {f"grad.{name}": one.grad.clone() for name, one in named.items()}
        if clip > 0.0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if step in (0, 4):
            expected |= {f"after{step + 1}.{name}": one.detach().clone() for name, one in named.items()}
        losses.append(loss.item())
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    case = {"optimizer": {"name": "AdamW", **adamw, "clip": clip}, "batch": batch, "seq": seq, "losses": losses}
    with open(os.path.join(folder, "losses.json"), "w") as file:
        file.write(json.dumps(case, indent=1) + "\n")


if __name__ == "__main__":
    main()
