"""A checkpoint saved by headroom opens with the safetensors package: names, shapes, dtypes and values as Hugging Face's."""
import json
import pathlib
import sys

import numpy
from safetensors import safe_open

from headroom_runs import expected_shapes, train_nano

# The row `nano` of the table of sizes, in Hugging Face's words.
NANO = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
}
PARAMETERS = {"untied": 202_048, "tied": 202_048 - 1000 * 64}


def problems(saved, variant):
    config = json.loads((saved / "config.json").read_text())
    for key, value in (NANO | {"tie_word_embeddings": variant == "tied"}).items():
        if config.get(key) != value:
            yield f"config.json: {key} is {config.get(key)!r}, not {value!r}"
    dtype = config.get("dtype", config.get("torch_dtype"))
    if dtype != "float32":
        yield f"config.json: dtype is {dtype!r}, not 'float32'"
    rope = (config.get("rope_parameters") or config).get("rope_theta")
    if rope != 10000.0:
        yield f"config.json: rope_theta is {rope!r}, not 10000.0"
    with safe_open(saved / "model.safetensors", framework="numpy") as file:
        if (file.metadata() or {}).get("format") != "pt":
            yield f"model.safetensors: metadata is {file.metadata()}, and transformers wants format 'pt'"
        want, have = expected_shapes(config), set(file.keys())
        yield from (f"model.safetensors: no {name}" for name in sorted(set(want) - have))
        yield from (f"model.safetensors: {name} is not a name of Hugging Face's" for name in sorted(have - set(want)))
        count = 0
        for name in sorted(have & set(want)):
            tensor = file.get_tensor(name)
            count += tensor.size
            if list(tensor.shape) != want[name] or tensor.dtype != numpy.float32:
                yield f"model.safetensors: {name} is {tensor.dtype} {list(tensor.shape)}, not float32 {want[name]}"
            elif not numpy.isfinite(tensor).all() or not tensor.any():
                yield f"model.safetensors: {name} holds nothing, or values that are not finite"
        if count != PARAMETERS[variant]:
            yield f"model.safetensors: {count} parameters, not {PARAMETERS[variant]}"


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    found = []
    for variant, flags in (("untied", []), ("tied", ["--tied"])):
        (folder / variant).mkdir()
        saved = train_nano(binary, folder / variant, *flags)
        found += [f"{variant}: {problem}" for problem in problems(saved, variant)]
    sys.exit("\n".join(found) or 0)


main()
