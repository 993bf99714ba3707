"""A checkpoint saved by headroom generates in transformers what `headroom generate` does: greedy, fp32, 64 tokens.

Each family is made by transformers with its tokenizer, chat template and generation settings, trained by headroom on text for
a few steps, resumed, and saved in each dtype. The first difference is allowed only where the two best logits are nearly equal.
"""
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from headroom_runs import headroom

TOKENS = 64
NEARLY = 1e-4
VOCABULARY = 320
SIZES = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY, max_position_embeddings=128)
SCALED = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
ENDS = dict(bos_token_id=0, eos_token_id=1)
MODELS = {
    "llama": LlamaConfig(**SIZES, **ENDS, num_key_value_heads=2),
    "llama-tied": LlamaConfig(**SIZES, **ENDS, num_key_value_heads=4, tie_word_embeddings=True),
    "llama3": LlamaConfig(**SIZES, **ENDS, num_key_value_heads=2, rope_parameters=SCALED),
    "qwen3": Qwen3Config(**SIZES, **ENDS, num_key_value_heads=2, head_dim=16),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=48, n_layer=2, n_head=4, **ENDS),
}
DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
IN_FILE = {"bf16": "BF16", "fp32": "F32", "fp16": "F16"}
CARRIED = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
PROMPTS = ("the cat", "on the mat and", "a dog that saw the moon")
TEXT = "the cat sat on the mat and the dog that saw the moon ran over a hill of green grass. " * 120


def tokenizer(text):
    """A byte-level encoder trained on the text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([text], trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return fast


def generated(binary, saved, prompt):
    said = headroom(
        binary, "generate", "--from", saved, "--prompt", prompt, "--max-tokens", TOKENS, "--temperature", 0, "--precision", "fp32", "--json",
    )
    return json.loads(said)


def difference(model, prompt, ours, ended):
    """What differs between our tokens and transformers', or nothing."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False)[0, len(prompt):].tolist()
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    # transformers keeps the token that ends the text.
    if ended == "end_token" and len(theirs) == len(ours) + 1 and theirs[-1] in ends:
        theirs = theirs[:-1]
    if ours == theirs:
        return None
    at = next((at for at, (one, other) in enumerate(zip(ours, theirs)) if one != other), min(len(ours), len(theirs)))
    with torch.no_grad():
        best = model(torch.tensor([prompt + theirs[:at]])).logits[0, -1].topk(2).values
    gap = (best[0] - best[1]).item()
    if gap < NEARLY:
        return None
    return f"token {at} differs: headroom {ours[at:at + 3]}, transformers {theirs[at:at + 3]}, whose best logit is {gap:g} above the next"


def problems(binary, folder, name, config):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    # As instruction-tuned models have it: more tokens that end a text than config.json says.
    model.generation_config.eos_token_id = [1, 2]
    source, text = folder / "source", folder / "text.txt"
    model.save_pretrained(source)
    tokenizer(TEXT).save_pretrained(source)
    text.write_text(TEXT)
    common = ("--batch-size", 4, "--seq-len", 32, "--learning-rate", 3e-3)
    loaded = ("train", "--init-from", source, "--data", text, *common)
    headroom(binary, *loaded, "--num-steps", 20, "--save", folder / "first", "--output-dir", folder / "run")
    for dtype, named in DTYPES.items():
        saved = folder / dtype
        headroom(
            binary, "train", "--resume", folder / "first", "--num-steps", 30, "--save", saved, "--save-dtype", dtype,
            "--output-dir", folder / f"run-{dtype}",
        )
        for file in CARRIED:
            if (saved / file).read_bytes() != (source / file).read_bytes():
                yield f"{dtype}: {file} is not the loaded model's"
        with safe_open(saved / "model.safetensors", framework="pt") as file:
            if {file.get_slice(key).get_dtype() for key in file.keys()} != {IN_FILE[dtype]}:
                yield f"{dtype}: model.safetensors holds another dtype"
        if AutoModelForCausalLM.from_pretrained(saved, dtype="auto").dtype != getattr(torch, named):
            yield f"{dtype}: transformers loads it as another dtype"
        reader = AutoTokenizer.from_pretrained(saved)
        again = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32).eval()
        for prompt in PROMPTS:
            ours = generated(binary, saved, prompt)
            ids = reader(prompt, add_special_tokens=False).input_ids
            if ours["prompt_tokens"] != ids:
                yield f"{dtype}: {prompt!r} is {ours['prompt_tokens']} to headroom, {ids} to transformers"
                continue
            found = difference(again, ids, ours["tokens"], ours["end"])
            if found:
                yield f"{dtype}: {prompt!r}: {found}"
    if (folder / "bf16" / "model.safetensors").read_bytes() == (folder / "first" / "model.safetensors").read_bytes():
        yield "ten steps more changed nothing"


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    found = []
    for name, config in MODELS.items():
        (folder / name).mkdir()
        found += [f"{name}: {problem}" for problem in problems(binary, folder / name, name, config)]
    sys.exit("\n".join(found) or 0)


main()
