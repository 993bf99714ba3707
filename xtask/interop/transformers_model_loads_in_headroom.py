"""A model saved by transformers loads in headroom with --init-from and has the same loss on the same batch."""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config

from headroom_runs import headroom, losses

# Batch 3, length 11, head_dim 16: no power of two where the model allows another.
SHAPE = (3, 11)
SIZES = dict(
    hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=3, vocab_size=101, max_position_embeddings=32,
)
SCALED = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
MODELS = {
    "untied": LlamaConfig(**SIZES, num_key_value_heads=1, tie_word_embeddings=False),
    "tied": LlamaConfig(**SIZES, num_key_value_heads=3, tie_word_embeddings=True),
    "scaled": LlamaConfig(**SIZES, num_key_value_heads=3, rope_parameters=SCALED),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=10),
    # With the dropout that it comes with: evaluation has none, and training here neither.
    "gpt2": GPT2Config(vocab_size=101, n_positions=32, n_embd=48, n_layer=2, n_head=3, bos_token_id=1, eos_token_id=2),
}
WITHIN = 1e-5


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    found = []
    for name, config in MODELS.items():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config).eval()
        model.save_pretrained(folder / name / "model")
        tokens = torch.randint(0, 101, (SHAPE[0], SHAPE[1] + 1))
        ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        batch = folder / name / "batch.safetensors"
        save_file({"input_ids": ids, "targets": targets}, batch)
        with torch.no_grad():
            want = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), targets.flatten()).item()
        said = headroom(
            binary, "train", "--init-from", folder / name / "model", "--data", batch, "--num-steps", 1,
            "--log-interval", 1, "--json", "--output-dir", folder / name / "run",
        )
        have = losses(said)[0]
        if not abs(have - want) <= WITHIN * want:
            found.append(f"{name}: headroom's loss is {have}, transformers' {want}")
    sys.exit("\n".join(found) or 0)


main()
