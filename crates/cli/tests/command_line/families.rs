//! Families of models: trained anew, resumed, loaded from a Hugging Face folder, and saved as they came.

use crate::place::{Place, SMALL};

#[test]
fn every_family_resumes_to_the_byte() {
    for family in ["qwen3", "gpt2"] {
        let place = Place::new();
        let line = format!("train {SMALL} --family {family} --decay matrices --passes all");
        place.succeeds(&format!("{line} --num-steps 6 --save straight"));
        place.succeeds(&format!("{line} --num-steps 3 --save half"));
        place.succeeds("train --resume half --num-steps 6 --save whole");
        for file in ["model.safetensors", "optimizer.safetensors", "config.json", "training_state.json"] {
            assert!(
                place.read(&format!("whole/{file}")) == place.read(&format!("straight/{file}")),
                "{family}: {file} differs"
            );
        }
    }
}

#[test]
fn a_loaded_model_keeps_its_configuration() {
    for (case, kept) in [
        (
            "llama3",
            &["bos_token_id", "eos_token_id", "max_position_embeddings", "rope_parameters", "transformers_version"][..],
        ),
        ("qwen3", &["layer_types", "max_window_layers", "sliding_window", "head_dim", "tie_word_embeddings"]),
        ("gpt2", &["n_positions", "n_embd", "eos_token_id", "summary_type", "activation_function", "dtype"]),
    ] {
        let place = Place::new();
        place.copy_case(case);
        place.succeeds(&format!("train --init-from {case} --batch-size 2 --seq-len 16 --num-steps 1 --save ck"));
        let (before, after) = (place.json(&format!("{case}/config.json")), place.json("ck/config.json"));
        for key in kept {
            assert_eq!(after[key], before[key], "{case}: {key}");
        }
    }
}

#[test]
fn a_family_has_its_own_tree_and_its_own_limits() {
    let place = Place::new();
    let tree = place.succeeds("train --size nano --family gpt2 --show-tree").stdout;
    assert!(tree.contains("c_attn.weight") && tree.contains("c_proj.bias"), "{tree}");
    place.refuses(&format!("train {SMALL} --family gpt2 --n-kv-heads 2"), &["GPT-2", "keys and values of its own"]);
    place.refuses("train --size nano --family gpt2 --seq-len 4096", &["2048 positions"]);
    place.copy_case("qwen3");
    place.refuses("train --init-from qwen3 --family gpt2", &["--family gpt2", "Qwen3"]);
}

#[test]
fn a_model_without_a_layer_in_eight_bits_says_so() {
    let place = Place::new();
    for (family, is_said) in [("gpt2", true), ("llama", false)] {
        let line = format!("train --size nano --family {family} --precision fp8 --num-steps 1");
        assert_eq!(place.succeeds(&line).stderr.contains("it runs as bf16"), is_said, "{family}");
    }
}
