//! Model families: trained from scratch, resumed, loaded from a Hugging Face folder, and saved in the same format.

use crate::home::place_with_peaks;
use crate::place::{Place, SMALL};

#[test]
fn every_family_resumes_to_the_byte() {
    for family in ["qwen3", "gpt2", "tree --branching 2-2"] {
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
        ("tree", &["branching", "num_hidden_layers", "max_position_embeddings", "architectures"]),
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
fn a_tree_has_nodes_to_choose_from_and_as_many_as_its_branching_says() {
    let place = Place::new();
    let tree = "train --size nano --family tree";
    let shown = place.succeeds(&format!("{tree} --branching 2-2 --show-tree")).stdout;
    let wanted = "\
model              387,008
├─ embed_tokens     64,000
├─ layers.0        258,944
│  ├─ layers.1     110,976
│  │  ├─ layers.2   36,992
│  │  └─ layers.3   36,992
│  └─ layers.4     110,976
│     ├─ layers.5   36,992
│     └─ layers.6   36,992
├─ norm                 64
└─ lm_head          64,000
7 nodes to choose from
";
    assert_eq!(shown, wanted);
    assert!(place.succeeds(&format!("{tree} --show-tree")).stdout.ends_with("41 nodes to choose from\n"));
    place.refuses(&format!("{tree} --branching 2-2 --update topk:8"), &["7", "--show-tree"]);
    place.refuses(&format!("{tree} --n-layers 3"), &["--branching", "--n-layers is left out"]);
    place.refuses(&format!("{tree} --branching 2-x"), &["--branching 2-x", "4-3-2"]);
    place.refuses(&format!("{tree} --branching 2-0"), &["at least 1"]);
    place.refuses("train --size nano --branching 2-2", &["LLaMA", "--family tree"]);
}

#[test]
fn a_run_on_a_tree_tells_what_it_updated_by_node() {
    let place = Place::new();
    let line = format!("train {SMALL} --family tree --branching 2-2 --num-steps 4");
    let done = place.succeeds(&format!("{line} --update path --output-dir o --save chosen"));
    assert!(done.stdout.contains("7 nodes (2-2)") && done.stdout.contains("update path of 7 nodes"), "{}", done.stdout);
    let record = place.json("o/attribution.json");
    let nodes: Vec<&str> = record["nodes"].as_array().unwrap().iter().map(|node| node.as_str().unwrap()).collect();
    assert_eq!(nodes.len(), 7 + 3, "{nodes:?}");
    for (node, name) in nodes.iter().enumerate() {
        let inner = ["layers.0", "layers.1", "layers.4"].contains(name);
        assert_eq!(record["updates"][node].as_u64(), Some(if inner { 0 } else { 4 }), "{name}");
    }
    let files = |folder: &str| place.read(&format!("{folder}/model.safetensors"));
    place.succeeds(&format!("{line} --update topk:all --save all"));
    place.succeeds(&format!("{line} --save dense"));
    assert!(files("all") == files("dense") && files("all") != files("chosen"));
}

#[test]
fn a_profile_of_a_tree_has_its_nodes_one_by_one() {
    let place = place_with_peaks();
    place.succeeds(&format!("profile {SMALL} --family tree --branching 2-1 --num-steps 6 --output-dir p"));
    let report = String::from_utf8(place.read("p/report.md")).unwrap();
    let table = report.split("## Nodes of the tree").nth(1).unwrap();
    let row = |line: &str| line.split('|').map(str::trim).skip(1).take(2).collect::<Vec<_>>().join(" ");
    let rows: Vec<String> = table.lines().filter(|line| line.starts_with("| layers.")).map(row).collect();
    assert_eq!(rows, ["layers.0 0", "layers.1 1", "layers.2 2", "layers.3 1", "layers.4 2"]);
    assert!(String::from_utf8(place.read("p/report.html")).unwrap().contains("Nodes of the tree"));
}

#[test]
fn a_model_without_a_layer_in_eight_bits_says_so() {
    let place = Place::new();
    for (family, is_said) in [("gpt2", true), ("llama", false)] {
        let line = format!("train --size nano --family {family} --precision fp8 --num-steps 1");
        assert_eq!(place.succeeds(&line).stderr.contains("it runs as bf16"), is_said, "{family}");
    }
}
