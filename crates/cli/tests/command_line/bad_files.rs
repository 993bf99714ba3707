//! Files that are missing, truncated, damaged or of another kind are refused by name.

use crate::place::{Place, SMALL};
use std::fs;

#[test]
fn data_that_cannot_be_read_is_refused() {
    let place = Place::new();
    place.copy_case("nano");
    fs::create_dir(place.path("folder")).unwrap();
    let batch = place.read("nano/expected.safetensors");
    place.write("cut.safetensors", &batch[..batch.len() / 2]);
    place.write("header.safetensors", &batch[..40]);
    place.write("garbage.safetensors", [0x5A; 500]);
    place.write("empty.safetensors", "");
    place.write("empty.txt", "");
    place.write("short.txt", "too short");
    place.write("binary.txt", [1, 2, 0, 3].repeat(100));
    place.write("odd.bin", [1; 301]);
    place.write("large.bin", [0xFF; 400]);
    for (file, words) in [
        ("absent.txt", &["`absent.txt`", "No such file"][..]),
        ("folder", &["folder holds no file to read"]),
        ("cut.safetensors", &["cut.safetensors"]),
        ("header.safetensors", &["header.safetensors"]),
        ("garbage.safetensors", &["garbage.safetensors"]),
        ("empty.safetensors", &["empty.safetensors"]),
        ("nano/model.safetensors", &["no tensor `input_ids`"]),
        ("nano/expected.safetensors --vocab-size 50", &["[0, ", "`input_ids`", "outside the vocabulary of 50"]),
        ("empty.txt", &["empty.txt has 0 tokens"]),
        ("short.txt", &["short.txt has 9 tokens", "--seq-len 8"]),
        ("binary.txt", &["does not look like text"]),
        ("odd.bin", &["301 bytes"]),
        ("large.bin", &["token 65535", "outside the vocabulary of 1000"]),
    ] {
        place.refuses(&format!("train {SMALL} --output-dir o --data {file}"), words);
    }
    place.refuses(&format!("train {SMALL} --eval-every 1 --eval-data absent.txt"), &["`absent.txt`"]);
}

/// A checkpoint of two steps, and a copy of it under `name` with one file changed.
fn changed(place: &Place, name: &str, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    if !place.path("good").exists() {
        place.succeeds(&format!("train {SMALL} --num-steps 2 --save good --output-dir run"));
    }
    place.copy("good", name);
    let mut bytes = place.read(&format!("good/{file}"));
    change(&mut bytes);
    place.write(&format!("{name}/{file}"), bytes);
}

fn refuses_to_resume(place: &Place, name: &str, words: &[&str]) {
    place.refuses(&format!("train --resume {name} --num-steps 5 --output-dir o"), words);
    place.refuses(&format!("train --resume {name} --num-steps 5 --output-dir o --save new/ck"), words);
}

#[test]
fn damaged_checkpoints_are_refused_by_file() {
    let place = Place::new();
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    for (file, names) in [
        ("model.safetensors", ["cut_model", "flipped_model"]),
        ("optimizer.safetensors", ["cut_optimizer", "flipped_optimizer"]),
    ] {
        changed(&place, names[0], file, cut);
        changed(&place, names[1], file, flip);
        refuses_to_resume(&place, names[0], &[file]);
        refuses_to_resume(&place, names[1], &[file, "changed or damaged"]);
    }
    for file in ["config.json", "training_state.json"] {
        let (cut_name, garbage) = (format!("cut_{file}"), format!("garbage_{file}"));
        changed(&place, &cut_name, file, cut);
        changed(&place, &garbage, file, |bytes| bytes.fill(b'x'));
        refuses_to_resume(&place, &cut_name, &[file, "does not parse"]);
        refuses_to_resume(&place, &garbage, &[file, "does not parse"]);
    }
}

#[test]
fn checkpoints_with_parts_missing_are_refused_by_what_is_missing() {
    let place = Place::new();
    place.copy_case("nano");
    place.write("file", "");
    fs::create_dir(place.path("empty")).unwrap();
    for (name, words) in [
        ("absent", &["absent", "config.json is missing"][..]),
        ("empty", &["empty", "config.json is missing"]),
        ("file", &["file"]),
        ("nano", &["no training_state.json", "--init-from"]),
    ] {
        place.refuses(&format!("train --resume {name}"), words);
    }
    for name in ["absent", "empty", "file"] {
        place.refuses(&format!("train --init-from {name}"), &[name]);
    }
    place.refuses("train --init-from nano --resume nano", &["cannot be used with"]);
}

#[test]
fn a_state_that_was_changed_is_not_resumed_from() {
    let place = Place::new();
    for (name, from, to) in [
        ("seed", "\"seed\": 42", "\"seed\": 43"),
        ("step", "\"step\": 2", "\"step\": 1"),
        ("rate", "\"learning_rate\": 0.0003", "\"learning_rate\": 0.0004"),
    ] {
        changed(&place, name, "training_state.json", |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.contains(from), "{text}");
            *bytes = text.replacen(from, to, 1).into_bytes();
        });
        refuses_to_resume(&place, name, &["training_state.json", "changed or damaged", "--init-from"]);
        place.succeeds(&format!("train --init-from {name} --num-steps 1 --batch-size 2 --seq-len 16"));
    }
}

#[test]
fn a_state_of_a_version_without_a_checksum_and_one_that_was_indented_anew_are_resumed_from() {
    let place = Place::new();
    changed(&place, "older", "training_state.json", |bytes| {
        let mut state: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        assert!(state["sha256"].as_object_mut().unwrap().remove("state").is_some());
        *bytes = serde_json::to_vec(&state).unwrap();
    });
    changed(&place, "compact", "training_state.json", |bytes| {
        *bytes = serde_json::to_vec(&serde_json::from_slice::<serde_json::Value>(bytes).unwrap()).unwrap();
    });
    for name in ["older", "compact"] {
        place.succeeds(&format!("train --resume {name} --num-steps 3"));
    }
}

#[test]
fn a_state_with_impossible_numbers_is_refused() {
    let place = Place::new();
    for (name, from, to) in [
        ("step", "\"step\": 2", "\"step\": 18446744073709551615"),
        ("position", "\"next_sample\": 4", "\"next_sample\": 18446744073709551614"),
        ("nowhere", "\"next_sample\": 4", "\"sample\": 4"),
        ("negative", "\"step\": 2", "\"step\": -2"),
        ("batch", "\"batch_size\": 2", "\"batch_size\": \"two\""),
    ] {
        changed(&place, name, "training_state.json", |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.contains(from));
            *bytes = text.replacen(from, to, 1).into_bytes();
        });
        refuses_to_resume(&place, name, &["training_state.json"]);
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_by_what_differs() {
    let place = Place::new();
    place.copy_case("nano");
    let config = String::from_utf8(place.read("nano/config.json")).unwrap();
    for (name, from, to, words) in [
        ("layers", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", &["model.layers.2", "is missing"][..]),
        ("wide", "\"intermediate_size\": 128", "\"intermediate_size\": 256", &["mlp.", "[256, 64]", "[128, 64]"]),
        ("mistral", "\"llama\"", "\"mistral\"", &["model_type", "mistral"]),
        ("heads", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", &["num_key_value_heads is 3"]),
        ("huge", "\"hidden_size\": 64", "\"hidden_size\": 4294967295", &["elements"]),
    ] {
        place.copy("nano", name);
        assert!(config.contains(from), "{config}");
        place.write(&format!("{name}/config.json"), config.replacen(from, to, 1));
        place.refuses(&format!("train --init-from {name}"), words);
    }
    place.refuses(
        "train --init-from nano --hidden-dim 32 --vocab-size 1000",
        &["--hidden-dim: 32 is asked for, the checkpoint has 64", "--vocab-size: 1000 is asked for"],
    );
    place.refuses("train --init-from nano --size tiny", &["--n-layers: 4 is asked for, the checkpoint has 2"]);
    place.refuses("train --init-from nano --tied", &["--tied: true is asked for, the checkpoint has false"]);
}

#[test]
fn a_run_that_is_done_already_is_not_resumed() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 5 --save ck"));
    for flags in ["", "--num-steps 5", "--num-steps 3"] {
        place.refuses(&format!("train --resume ck {flags}"), &["is already at step 5", "--num-steps"]);
    }
}
