"""Running the headroom binary, and what Hugging Face's names and shapes are for a LLaMA's config.json."""
import json
import os
import subprocess
import sys


def headroom(binary, *arguments):
    """Standard output of a headroom command that must succeed."""
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"headroom {' '.join(map(str, arguments))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def losses(json_lines):
    """The losses of `train --json`, in the order of the steps."""
    rows = [json.loads(line) for line in json_lines.splitlines() if line.strip()]
    return [row["loss"] for row in rows if "loss" in row]


def train_nano(binary, folder, *arguments):
    """A nano model after two steps, saved in folder/saved."""
    saved = folder / "saved"
    headroom(binary, "train", "--size", "nano", "--num-steps", 2, "--save", saved, "--output-dir", folder / "run", *arguments)
    for name in ("config.json", "model.safetensors"):
        if not (saved / name).is_file():
            sys.exit(f"headroom train --save {saved} left no {name}")
    return saved


def expected_shapes(config):
    """Name and shape of every tensor that LlamaForCausalLM has for this config.json."""
    d, inter, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head_dim = config.get("head_dim") or d // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes = {"model.embed_tokens.weight": [vocab, d], "model.norm.weight": [d]}
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = [vocab, d]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.input_layernorm.weight": [d],
            f"{at}.self_attn.q_proj.weight": [q, d],
            f"{at}.self_attn.k_proj.weight": [kv, d],
            f"{at}.self_attn.v_proj.weight": [kv, d],
            f"{at}.self_attn.o_proj.weight": [d, q],
            f"{at}.post_attention_layernorm.weight": [d],
            f"{at}.mlp.gate_proj.weight": [inter, d],
            f"{at}.mlp.up_proj.weight": [inter, d],
            f"{at}.mlp.down_proj.weight": [d, inter],
        }
    return shapes


def profile_nano(binary, folder, *arguments):
    """The folder of a short profile of nano, and its operator table by name."""
    os.environ.setdefault("HEADROOM_HOME", str(folder / "home"))
    run = folder / "run"
    headroom(binary, "profile", "--size", "nano", "--num-steps", 12, "--output-dir", run, *arguments)
    rows = json.loads((run / "operator_analysis.json").read_text())["operator_stats"]
    return run, {row["name"]: row for row in rows}


def only(folder, pattern):
    """The one file of that pattern."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} holds {len(found)} files {pattern}, not one")
    return found[0]


def compare_operators(reader, ours, theirs, tolerance_microseconds):
    """Counts must be the same, times within so many microseconds a call. `theirs` maps a name to (calls, microseconds)."""
    if set(ours) != set(theirs):
        sys.exit(f"{reader} sees the operators {sorted(theirs)}, the record has {sorted(ours)}")
    for name, row in ours.items():
        calls, microseconds = theirs[name]
        if calls != row["count"]:
            sys.exit(f"{reader} counts {calls} calls of {name}, the record has {row['count']}")
        difference = abs(microseconds - row["cpu_time_total"] * 1e6)
        if difference > tolerance_microseconds * calls:
            sys.exit(f"{reader} sees {microseconds} µs in {name}, the record has {row['cpu_time_total'] * 1e6} µs")
